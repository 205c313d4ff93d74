"""Claims computed again, with code that finds nothing and that no finder uses.

The package can be called, as the function `offcert.verify.document.verify`.

Its size: it states every argument a second time without one line of the finders, in exact
arithmetic, for each kind of proof and for the answers of five questions.
"""

from offcert.core.named import stand_for

stand_for(__name__, "offcert.verify.document", "verify")
