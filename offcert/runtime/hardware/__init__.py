"""Stated models of accelerators, and the time that an operation takes on them."""

from offcert.runtime.hardware.cards import HARDWARE
from offcert.runtime.hardware.files import hardware
from offcert.runtime.hardware.model import Hardware, OperationClass, roofline_ns

__all__ = ["HARDWARE", "Hardware", "OperationClass", "hardware", "roofline_ns"]
