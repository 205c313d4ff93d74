"""Functions that several verifiers need."""
