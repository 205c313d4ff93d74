"""Makes the shared helpers beside this file importable from every test."""
