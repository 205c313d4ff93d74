"""Addresses of buffers with sizes and times, in pools that hold them."""
