"""What the searches over labels share: when they end, and how several of them take turns."""
