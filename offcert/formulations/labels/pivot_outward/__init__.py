"""One side of a cut searched as by the pivot program, the other set by set, outward."""

from offcert.formulations.labels.pivot_outward.bound import PivotOutwardOutcome, PivotOutwardProgram

__all__ = ["PivotOutwardOutcome", "PivotOutwardProgram"]
