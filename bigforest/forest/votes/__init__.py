"""Where out-of-bag rows end in trees: files of a run, and a table of a forest."""
