"""The steps of the ladder for addresses: each adds placements or bounds, within its time."""

from __future__ import annotations

from offcert.certify.placement_search import PlacementSearch
from offcert.core.placement import Placement
from offcert.proofs.placement.claims import proved
from offcert.proofs.placement.kinds import Computed


def compute_load(search: PlacementSearch, seconds: float) -> None:
    """Add the load: the most bytes that are taken at a time."""
    search.begin("load")
    search.add(proved("load", search.problem.load, Computed()))


def place_first_fit(search: PlacementSearch, seconds: float) -> None:
    """Place large residences first, each at the lowest address at which nothing is in its way."""
    search.begin("first-fit")
    problem = search.problem
    sizes, residences = problem.sizes, problem.residences
    addresses = [0] * len(residences)
    placed: list[int] = []
    for index in sorted(range(len(residences)), key=lambda index: -sizes[index]):
        address = 0
        for other in sorted(placed, key=lambda other: addresses[other]):
            if residences[other].meets(residences[index]):
                if addresses[other] >= address + sizes[index]:
                    break
                address = max(address, addresses[other] + sizes[other])
        addresses[index] = address
        placed.append(index)
    search.offer(Placement(addresses))
