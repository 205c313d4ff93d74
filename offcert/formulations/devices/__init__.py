"""Several devices on one link: lower bounds, and an exact model."""
