"""The search for schedules and bounds; the package can be called, as the function `certify`."""

from offcert.core.named import stand_for

stand_for(__name__, "offcert.certify.ladder", "certify")
