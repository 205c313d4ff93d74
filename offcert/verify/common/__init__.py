"""What several verifiers need."""
