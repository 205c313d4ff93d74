"""Following a plan while the user's program trains, and accounts of how far it was followed."""
