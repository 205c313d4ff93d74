"""Capture: one training step of the user's own code becomes a trace.

Its size: a step is recorded as the user's code runs it, on fake or on real tensors, with its
kernels' scratch, views, collectives and Python state, and then becomes a trace, and a network whose
parts may run again.
"""

from offcert.runtime.capture.build import build
from offcert.runtime.capture.capture import Capture, Clock, read_capture
from offcert.runtime.capture.run import capture

__all__ = ["Capture", "Clock", "build", "capture", "read_capture"]
