"""Modules and kernels of searches, loaded once by the process that cells are forked from."""

from importlib import import_module

from offcert.campaign.cells import CERTIFY
from offcert.campaign.run import warm_up

for _name in (
    "offcert.formulations.fluid.milp",
    "offcert.formulations.models.interval_cpsat",
    "offcert.formulations.models.stage_milp",
):
    import_module(_name)
# No solver runs here: a solver's threads would not survive being forked.
warm_up(CERTIFY)
