"""Policies for which tensors leave the device: published ones and our own, one file each."""
