"""Claims computed again, with code that finds nothing and that no finder uses.

The package can be called, as the function `offcert.verify.document.verify`.
"""

from offcert.core.named import stand_for

stand_for(__name__, "offcert.verify.document", "verify")
