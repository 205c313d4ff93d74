"""Loaded once by the process that all cells are forked from: what every heuristic needs.

Importing it compiles, or loads what was compiled before, so that no cell pays for it.
"""

from offcert.campaign.run import warm_up
from offcert.certify.methods import METHODS

for _name, _method in METHODS.items():
    if not _method.reads:
        warm_up(_name)
