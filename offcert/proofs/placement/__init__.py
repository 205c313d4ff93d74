"""What is claimed about addresses: placement documents, kinds of bounds on the pool."""
