"""Kinds of proof for bounds on a pool of addresses: one frozen dataclass each.

`offcert.proofs.placement.registry` says under which names bounds with these proofs stand in
documents. Numbers of residences are indices into those of the problem.
"""

from __future__ import annotations

from offcert.proofs.kinds import Computed as Computed
