"""The pivot dynamic program; `pivot_bound` is its entry."""

from offcert.formulations.labels.pivot.bound import PivotOutcome, pivot_bound

__all__ = ["PivotOutcome", "pivot_bound"]
