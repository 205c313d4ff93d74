"""Training under a plan: what users import. Here certification and the runtime meet."""

from offcert.training.offload import offload

__all__ = ["offload"]
