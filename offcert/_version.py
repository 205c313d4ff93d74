"""The version, for whoever writes it into a document."""

__version__ = "0.1.0"
