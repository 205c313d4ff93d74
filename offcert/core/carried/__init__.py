"""What checkpointing makes of a program on a step that was recorded, without running it."""
