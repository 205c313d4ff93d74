"""In which parts and by which algorithms: a training step before that is decided."""
