"""`place`: finds addresses on the device, and bounds on the pool that they need; or on the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack, overload

from offcert.certification.climbing import climb
from offcert.certification.interrupts import ending_whole, watched
from offcert.certification.method import Effort
from offcert.certification.placement_methods import placement_method_called
from offcert.certification.running import ALONE, SearchProgress, UnsoundError
from offcert.certification.search import PlacementSearch
from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.core.options import require_count, require_seconds, require_seed
from offcert.core.trace import require_integer
from offcert.formulations.placement.shortening import shortened
from offcert.proofs.any_certificate import AnyCertificate, Settings
from offcert.proofs.certificate import Certificate
from offcert.proofs.placement_certificate import PlacementCertificate
from offcert.proofs.questions import PLACEMENT
from offcert.proofs.split_certificate import SplitCertificate
from offcert.questions.placement.problem import Occupant, PlacementProblem, Residence
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.residences import (
    HOST_ALIGNMENT,
    host_placement_problem,
    placement_problem,
    require_whole,
    residences,
)
from offcert.questions.schedule.schedule import Schedule


def with_short_residences(certificate: Certificate, time_limit: float) -> Certificate:
    """Return the certificate with a schedule of the same step time that is easier to place.

    If its schedule, a valid one of whole transfers, is another one in the end, it has no addresses;
    else it is the very same. Raises `UnsoundError` if the checker refuses the new schedule.
    """
    given, executed = certificate.result.schedule, certificate.executed
    assert isinstance(given, Schedule)
    found = shortened(executed, given, time_limit=time_limit)
    if found == given:
        return certificate
    faults = check(executed, found)
    if found.makespan != given.makespan:
        faults.append(f"its makespan is {found.makespan} instead of {given.makespan}")
    if faults:
        raise UnsoundError(f"shortening returned an invalid schedule: {faults[0]}")
    return replace(certificate, result=replace(certificate.result, schedule=found), placement=None)


# Seconds that even the last round has, so that a quick method is tried. Arbitrary.
_LEAST = 0.1


class PlaceOptions(TypedDict, total=False):
    """Options of `place`, which describes each of them."""

    capacity: int | None
    alignment: int | None
    shorten: bool
    time_limit: float
    workers: int
    seed: int
    progress: Callable[[SearchProgress], None] | None
    keep: Callable[[Any], None] | None


Scheduled = TypeVar("Scheduled", Certificate, SplitCertificate)
Answer = TypeVar("Answer")


@overload
def place(
    what: PlacementProblem, method: str | None = None, **options: Unpack[PlaceOptions]
) -> PlacementCertificate: ...


@overload
def place(
    what: Scheduled, method: str | None = None, **options: Unpack[PlaceOptions]
) -> Scheduled: ...


def place(
    what: PlacementProblem | Certificate | SplitCertificate,
    method: str | None = None,
    *,
    capacity: int | None = None,
    alignment: int | None = None,
    shorten: bool = False,
    time_limit: float = 60.0,
    workers: int = 2,
    seed: int = 0,
    progress: Callable[[SearchProgress], None] | None = None,
    keep: Callable[[Any], None] | None = None,
) -> PlacementCertificate | Certificate | SplitCertificate:
    """Find addresses for residences, or for all that a certificate's schedules use.

    Parameters
    ----------
    what : PlacementProblem, Certificate or SplitCertificate
        A certificate must hold a schedule of whole transfers; of a step, one for every round.
    method : str, optional
        One method, as ``offcert methods`` lists them; by default all, the quick ones first, until
        pool and bound meet or the time is over.
    capacity : int, optional
        Bytes within which any placement will do; by default the problem's, if it has one, and else
        the pool is to be as small as possible.
    alignment : int, optional
        Bytes of which addresses are multiples; by default the problem's, and 1 for a certificate.
    shorten : bool
        Whether a certificate's schedule may first be replaced by one of the same step time that
        keeps things for as short as possible. That is far easier to place; but nothing returns
        earlier than it has to, so whatever takes longer than was foreseen delays the step.
    time_limit : float
        Seconds. What is known then is returned; an interrupt (Ctrl-C) does the same.
    workers : int
        Threads for solvers that can use several.
    seed : int
        Seed of every random choice.
    progress : callable, optional
        Told of every step and improvement.
    keep : callable, optional
        Given what would be returned now, before every step and at improvements about every second.

    Returns
    -------
    PlacementCertificate, Certificate or SplitCertificate
        Of a certificate the same certificate, with addresses; and with the schedule that they are
        for, if it was shortened.

    Raises
    ------
    InputError
        If an argument is of the wrong type or out of its range, there is no such method, or the
        certificate holds no schedule that can be placed; or if there is no certificate whose
        schedule could be shortened.
    """
    options: PlaceOptions = {
        "capacity": capacity,
        "alignment": alignment,
        "shorten": shorten,
        "time_limit": time_limit,
        "workers": workers,
        "seed": seed,
        "progress": progress,
        "keep": keep,
    }
    if isinstance(what, PlacementProblem):
        return place_problem(what, method, options)
    placer = what.question.placer if isinstance(what, AnyCertificate) else None
    if placer is None:
        raise InputError(
            "what is placed must be a PlacementProblem, a Certificate or a SplitCertificate, not "
            f"{short_repr(what)}"
        )
    found: PlacementCertificate = placer.load()(what, method, options)
    return found


def place_problem(
    problem: PlacementProblem, method: str | None, options: PlaceOptions
) -> PlacementCertificate:
    """Find addresses for a problem; see `place`."""
    asked = _Asked(method, options)
    if options["shorten"]:
        raise InputError("only the schedule of a certificate can be shortened, no other problem")
    if options["capacity"] is not None:
        problem = problem.with_capacity(options["capacity"])
    if options["alignment"] is not None:
        problem = problem.with_alignment(options["alignment"])
    return asked.search(problem, asked.time_limit, lambda placed: placed)


def place_again(
    certificate: PlacementCertificate, method: str | None, options: PlaceOptions
) -> PlacementCertificate:
    """Find addresses for the problem of a certificate; see `place`."""
    return place_problem(certificate.problem, method, options)


def place_schedule(
    certificate: Certificate, method: str | None, options: PlaceOptions
) -> Certificate:
    """Find addresses for what one schedule uses; see `place`."""
    asked = _Asked(method, options)
    what, left, interrupted = certificate, asked.time_limit, False
    problem, occupants = _of_schedule(what, options)
    if options["shorten"]:
        began = time.monotonic()
        try:
            what = with_short_residences(certificate, asked.time_limit)
            left = max(0.0, asked.time_limit - (time.monotonic() - began))
        except KeyboardInterrupt:
            interrupted = True
        problem, occupants = _of_schedule(what, options)

    def with_addresses(placed: PlacementCertificate) -> Certificate:
        notes = replace(placed.notes, shortened=what is not certificate)
        return replace(what, placement=replace(placed, occupants=occupants, notes=notes))

    return asked.search(problem, left, with_addresses, interrupted)


@dataclass
class _Asked:
    """The options of a search for addresses, checked."""

    method: str | None
    options: PlaceOptions

    def __post_init__(self) -> None:
        options = self.options
        self.time_limit = require_seconds(options["time_limit"], "time_limit")
        self.workers = require_count(options["workers"], "workers")
        self.seed = require_seed(options["seed"], "seed")
        self.chosen = None if self.method is None else placement_method_called(self.method)
        if options["capacity"] is not None:
            require_integer(options["capacity"], "capacity", 0)
        if options["alignment"] is not None:
            require_integer(options["alignment"], "alignment", 1)

    def search(
        self,
        problem: PlacementProblem,
        seconds: float,
        answer: Callable[[PlacementCertificate], Answer],
        interrupted: bool = False,
    ) -> Answer:
        """Search for addresses; return the answer made from the best pool and bounds."""
        chosen, seed, keep = self.chosen, self.seed, self.options["keep"]
        name = PLACEMENT.command if self.method is None else self.method
        said = {"time_limit": self.time_limit, "workers": self.workers, "seed": seed}
        if chosen is not None:
            said = {key: value for key, value in said.items() if key in chosen.reads}
        settings = Settings(**said)  # type: ignore[arg-type]

        def known(search: PlacementSearch, unfinished: str | None = None) -> Answer:
            return answer(search.certificate(name, settings, unfinished))

        keeping = None if keep is None else lambda search: keep(known(search, search.step))
        search = PlacementSearch(problem, seconds, self.options["progress"], keeping)
        if interrupted:
            search.note(interrupted=True)
            return known(search)
        try:
            if chosen is None:
                climb(search, partial(known, search), self.workers, seed)
            else:
                with watched(search, seconds, partial(known, search)), search.surviving(but=ALONE):
                    chosen.alone(search, Effort(seconds, self.workers, seed))
        except KeyboardInterrupt:
            search.note(interrupted=True)
        return known(search)


def place_rounds(
    what: SplitCertificate, method: str | None, options: PlaceOptions
) -> SplitCertificate:
    """Find addresses for all that the rounds of a step use; see `place`.

    Rounds run one after the other, each in the same memory, so the pool of the step is the largest
    of theirs. A round shares the time that is left equally with those after it. After an interrupt
    the rounds that follow stay as they are.
    """
    if what.split is None:
        raise InputError("the certificate holds no schedule, so there is nothing to be placed")
    end = time.monotonic() + require_seconds(options["time_limit"], "time_limit")
    keep = options["keep"]
    rounds = list(what.rounds)

    def known(number: int, placed: Certificate) -> SplitCertificate:
        rounds[number] = replace(rounds[number], certificate=placed)
        return replace(what, rounds=tuple(rounds))

    def keeping(number: int, placed: Certificate) -> None:
        assert keep is not None
        keep(known(number, placed))

    with ending_whole(lambda: replace(what, rounds=tuple(rounds))):
        for number, each in enumerate(what.rounds):
            share = (end - time.monotonic()) / (len(rounds) - number)
            own: PlaceOptions = {
                **options,
                "time_limit": max(share, _LEAST),
                "keep": None if keep is None else partial(keeping, number),
            }
            placed = place_schedule(each.certificate, method, own)
            known(number, placed)
            assert placed.placement is not None
            if placed.placement.notes.interrupted:
                break
    return replace(what, rounds=tuple(rounds))


def checked_schedule(certificate: Certificate) -> tuple[Problem, Schedule]:
    """Return the problem that is executed and its schedule, if that can be placed."""
    schedule, executed = certificate.result.schedule, certificate.executed
    if schedule is None:
        raise InputError("the certificate holds no schedule, so there is nothing to be placed")
    whole = require_whole(schedule)
    faults = check(executed, whole)
    if faults:
        raise InputError(f"the certificate's schedule is none of its problem: {faults[0]}")
    return executed, whole


def _of_schedule(
    certificate: Certificate, options: PlaceOptions
) -> tuple[PlacementProblem, tuple[Occupant, ...]]:
    """Return the residences to be placed, and the tensor or workspace of each."""
    executed, schedule = checked_schedule(certificate)
    problem = placement_problem(executed, schedule, options["capacity"], options["alignment"] or 1)
    return problem, tuple(of for of, _ in residences(executed.trace, schedule))


def host_problem(
    what: Certificate | SplitCertificate, alignment: int = HOST_ALIGNMENT
) -> PlacementProblem:
    """Return the problem of finding addresses on the host for tensors that have left the device.

    Times are ticks of the schedule, for whoever carries out its transfers in their order; see
    `offcert.questions.schedule.residences`. The rounds of a step follow each other, each counted
    once: no copy is of use after its round. Addresses are multiples of `alignment` bytes.
    """
    require_integer(alignment, "alignment", 1)
    says = what.question.host if isinstance(what, AnyCertificate) else None
    if says is None:
        raise InputError(
            f"what leaves a device is said by certificates of schedules or steps, not by "
            f"{short_repr(what)}"
        )
    return says.load()(what, alignment)


def host_of_schedule(certificate: Certificate, alignment: int) -> PlacementProblem:
    """Return the problem of the copies that one schedule makes; see `host_problem`."""
    return host_placement_problem(*checked_schedule(certificate), alignment)


def host_of_rounds(what: SplitCertificate, alignment: int) -> PlacementProblem:
    """Return the problem of the copies that the rounds of a step make; see `host_problem`."""
    if what.split is None:
        raise InputError("the certificate holds no schedule, so there is nothing to be placed")
    rows: list[Residence] = []
    begin = 0
    for number, each in enumerate(what.rounds, start=1):
        executed, schedule = checked_schedule(each.certificate)
        rows += [
            Residence(f"{row.name}, round {number}", row.size, begin + row.start, begin + row.end)
            for row in host_placement_problem(executed, schedule).residences
        ]
        begin += schedule.makespan
    name = f"{what.problem.name} on the host"
    return PlacementProblem(name, rows, None, alignment, what.problem.units)
