"""Kernels of all heuristics, loaded once by the process that cells are forked from.

Importing it compiles, or loads what was compiled before, so that no cell pays for it.
"""

from offcert.campaign.run import warm_up
from offcert.certification.methods import METHODS

for _name, _method in METHODS.items():
    if not _method.reads:
        warm_up(_name)
