"""Addresses for a certificate of a step: each of its rounds is placed by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic

from offcert.certify.placing import place
from offcert.certify.running import SearchProgress
from offcert.certify.watchdog import ending_whole
from offcert.core.errors import InputError
from offcert.core.options import require_seconds
from offcert.proofs.certificate import Certificate
from offcert.proofs.step_certificate import StepCertificate

# Seconds that even the last round has, so that something quick is tried.
_LEAST = 0.1


def place_step(
    what: StepCertificate,
    method: str | None = None,
    *,
    capacity: int | None = None,
    alignment: int | None = None,
    shorten: bool = False,
    time_limit: float = 60.0,
    workers: int = 2,
    seed: int = 0,
    progress: Callable[[SearchProgress], None] | None = None,
    keep: Callable[[StepCertificate], None] | None = None,
) -> StepCertificate:
    """Find addresses for all that the rounds of a step use.

    Rounds run one after the other, each in the same memory, so the pool of the step is the largest
    of theirs. A round shares the time that is left equally with those after it.

    Parameters
    ----------
    what : StepCertificate
        With a split that was chosen, and a schedule of whole transfers for every round.
    method, capacity, alignment, shorten, time_limit, workers, seed, progress, keep
        As for `offcert.certify.placing.place`. After an interrupt the rounds that follow stay as
        they are.

    Returns
    -------
    StepCertificate
        The same one; the certificates of its rounds have addresses.

    Raises
    ------
    InputError
        If no schedule is known, or as `place`.
    """
    if what.split is None:
        raise InputError("the certificate holds no schedule, so there is nothing to be placed")
    end = monotonic() + require_seconds(time_limit, "time_limit")
    rounds = list(what.rounds)

    def known(number: int, placed: Certificate) -> StepCertificate:
        rounds[number] = replace(rounds[number], certificate=placed)
        return replace(what, rounds=tuple(rounds))

    def keeping(number: int, placed: Certificate) -> None:
        assert keep is not None
        keep(known(number, placed))

    with ending_whole(lambda: replace(what, rounds=tuple(rounds))):
        for number, each in enumerate(what.rounds):
            share = (end - monotonic()) / (len(rounds) - number)
            placed = place(
                each.certificate,
                method,
                capacity=capacity,
                alignment=alignment,
                shorten=shorten,
                time_limit=max(share, _LEAST),
                workers=workers,
                seed=seed,
                progress=progress,
                keep=None if keep is None else partial(keeping, number),
            )
            known(number, placed)
            assert placed.placement is not None
            if placed.placement.notes.interrupted:
                break
    return replace(what, rounds=tuple(rounds))
