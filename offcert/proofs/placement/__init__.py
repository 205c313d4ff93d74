"""Claims about addresses: placement documents, kinds of bounds on the pool."""
