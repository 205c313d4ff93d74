"""Certified offloading plans for neural-network training under a memory limit."""

__version__ = "0.1.0"
