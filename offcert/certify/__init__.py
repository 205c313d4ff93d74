"""Bounds ladder, certificate and independent verification."""
