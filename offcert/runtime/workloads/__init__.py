"""What is trained: a model, its input and its loss, and a step like those of the papers."""
