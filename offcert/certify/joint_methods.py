"""The methods for problems in which computations may run again, or memory is minimised, by name."""

from __future__ import annotations

from offcert.certify.checkpoint_steps import descend_checkpoints
from offcert.certify.joint_bound_steps import climb_joint
from offcert.certify.joint_steps import descend_plain
from offcert.certify.method import Method
from offcert.core.problem import Minimise, Recompute

_NETWORKS = "chains, and networks as profile writes them"
_AGAIN = frozenset({Recompute.CHAIN, Recompute.ANY})
_CHAINS = "chains"
_TIME, _EITHER = frozenset({Minimise.TIME}), frozenset(Minimise)

JOINT_METHODS = {
    "offload-alone": Method(
        run=descend_plain,
        summary="the best schedule in which nothing runs again, as certify finds it",
        reads=("time_limit", "workers", "target_gap", "seed"),
        network=_NETWORKS,
        recompute=_AGAIN,
        minimise=_TIME,
    ),
    "joint-lp": Method(
        run=climb_joint,
        summary="linear relaxation of moving and computing again together",
        bounds=("joint-lp",),
        reads=("time_limit",),
        network=_NETWORKS,
        recompute=_AGAIN,
        minimise=_TIME,
    ),
    "checkpoints": Method(
        run=descend_checkpoints,
        summary="stored data and segments that run again: published selections, and the best ones",
        network=_CHAINS,
        recompute=_AGAIN,
        minimise=_EITHER,
        chains=True,
    ),
}
