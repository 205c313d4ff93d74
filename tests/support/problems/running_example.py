"""The running example of the theory: five operations, three tensors, and an optimum of 13 ticks."""

from __future__ import annotations

from fractions import Fraction

import offcert

TRACE = offcert.Trace(
    [offcert.Operation(f"o{o}", 1) for o in range(5)],
    [
        offcert.Tensor("a", 2, (-1, 4)),
        offcert.Tensor("b", 4, (0, 4)),
        offcert.Tensor("c", 3, (1, 3)),
    ],
)
EXAMPLE = offcert.Problem("example", TRACE, offcert.Platform(6, Fraction(1)))
