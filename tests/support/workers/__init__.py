"""What other processes import, which run it for a test."""
