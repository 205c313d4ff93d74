"""Addresses for a certificate of a step: each of its rounds is placed by itself."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import monotonic

from offcert.certify.placing import PlaceOptions, place_alone
from offcert.certify.watchdog import ending_whole
from offcert.core.errors import InputError
from offcert.core.options import require_seconds
from offcert.proofs.certificate import Certificate
from offcert.proofs.step_certificate import StepCertificate

# Seconds that even the last round has, so that something quick is tried.
_LEAST = 0.1


def place_step(what: StepCertificate, method: str | None, options: PlaceOptions) -> StepCertificate:
    """Find addresses for all that the rounds of a step use; see `offcert.certify.placing.place`.

    Rounds run one after the other, each in the same memory, so the pool of the step is the largest
    of theirs. A round shares the time that is left equally with those after it. After an interrupt
    the rounds that follow stay as they are.

    Raises
    ------
    InputError
        If no schedule is known, or as `place`.
    """
    if what.split is None:
        raise InputError("the certificate holds no schedule, so there is nothing to be placed")
    end = monotonic() + require_seconds(options["time_limit"], "time_limit")
    keep = options["keep"]
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
            own: PlaceOptions = {
                **options,
                "time_limit": max(share, _LEAST),
                "keep": None if keep is None else partial(keeping, number),
            }
            placed = place_alone(each.certificate, method, own)
            known(number, placed)
            assert placed.placement is not None
            if placed.placement.notes.interrupted:
                break
    return replace(what, rounds=tuple(rounds))
