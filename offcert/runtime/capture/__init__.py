"""Capture: one training step of the user's own code becomes a trace."""

from offcert.runtime.capture.build import build
from offcert.runtime.capture.capture import Capture, Clock, read_capture
from offcert.runtime.capture.run import capture

__all__ = ["Capture", "Clock", "build", "capture", "read_capture"]
