"""Whether a certificate of a schedule holds."""
