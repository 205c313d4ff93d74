"""Several devices on one host that share a link and train data-parallel."""
