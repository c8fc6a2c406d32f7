"""What a table and a training run are: types of columns, the dataspec, the options of training."""
