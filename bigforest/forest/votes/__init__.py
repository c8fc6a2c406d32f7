"""Where rows out of bag end in trees: files of a run, and a table of a forest."""
