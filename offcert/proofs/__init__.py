"""Certificates: their format, and a type for every kind of proof."""
