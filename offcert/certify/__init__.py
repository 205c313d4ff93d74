"""The search for schedules and bounds; the package can be called, as the function `certify`.

Its size: a search is interruptible at any moment, keeps the best found, and runs in processes that
may hang or die; and the same engine answers five questions.
"""

from offcert.core.named import stand_for

stand_for(__name__, "offcert.certify.ladder", "certify")
