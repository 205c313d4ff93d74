"""Problems, plans and certificates: drawn from a seed, or made by hand."""
