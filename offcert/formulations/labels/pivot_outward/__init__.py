"""One side of a cut searched as by the pivot program, the other set by set, outward."""

from offcert.formulations.labels.pivot_outward.bound import PivotOutwardOutcome, PivotOutwardSearch

__all__ = ["PivotOutwardOutcome", "PivotOutwardSearch"]
