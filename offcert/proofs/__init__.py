"""What a certificate says: its format, and a type for every kind of proof."""
