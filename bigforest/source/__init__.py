"""Tables to train on and to predict for, wherever they are."""
