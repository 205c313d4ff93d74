"""The execution that checkpointing makes of a program on a recorded step, without running it."""
