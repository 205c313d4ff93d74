"""Training steps of the moDNN paper: layer tables, task graphs, convolution algorithms."""
