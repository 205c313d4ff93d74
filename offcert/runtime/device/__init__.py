"""Devices with streams: what the engine needs of one, CUDA's, and one that is simulated."""
