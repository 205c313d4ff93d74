"""How checkpointing would execute a program on a recorded training step."""
