"""Devices with streams: what the engine needs of one, and CUDA's."""
