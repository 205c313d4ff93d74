"""Pages of the documentation, and the commands on them."""
