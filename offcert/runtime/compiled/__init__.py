"""Plans under `torch.compile`: transfers and recomputation as nodes of the compiled graphs."""
