"""At which addresses: buffers with sizes and times, and pools that hold them."""
