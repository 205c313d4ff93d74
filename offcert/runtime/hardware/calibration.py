"""Cards as quick as they are in steps of training, and not as their best kernels are.

What a card reaches of its peaks is known of large kernels, each alone. In a training step products
are smaller, several run at the limit of the card's power, and the next one waits for the last part
of the one before. One number says by how much: the part of the best that products, convolutions
and attention reach. Element-wise operators take what the rate of memory says, as measured.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from offcert.runtime.hardware.model import Hardware

# Behind the name of a card.
CALIBRATED = "-calibrated"
# Fitted by `benchmarks/plausibility.py --fit` to throughputs of training steps, published ones and
# those of an H200, half of which was held out.
SUSTAINED = Fraction("0.74")


def calibrated(card: Hardware) -> Hardware:
    """Return a card with the part of its best that its kernels reach in steps of training."""
    return replace(
        card,
        name=card.name + CALIBRATED,
        sustained=SUSTAINED,
        source=f"{card.source}; in training {float(SUSTAINED):g} of that, but for traffic: fitted",
    )
