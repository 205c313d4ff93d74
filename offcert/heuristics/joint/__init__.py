"""Searches for plans in which computations run again and tensors leave the device."""
