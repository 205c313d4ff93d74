"""Training under a plan: what users import. Here certification and the runtime meet.

Its size: plans are made while a user's training runs, are replaced when its shapes or its memory
change, and come into Transformers, Accelerate and Lightning by their own doors.
"""

from offcert.training.offload import offload

__all__ = ["offload"]
