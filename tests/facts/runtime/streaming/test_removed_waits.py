"""Every wait that the engine makes, taken away: the simulated device finds that it is missing.

Found means wrong bytes (what was not copied in time is poison), a race, or both; what only keeps
order on the link, or lets go of memory, is found there.
"""

import gc
import random
import warnings

import torch

from offcert.core.platform import Kind
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.residences import HostResidences
from offcert.runtime.follow.offload import OffloadWarning, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.timetable import Act, host_residences_in_streams
from offcert.runtime.simulated import RaceKind, SimulatedDevice
from offcert.runtime.streaming.stream_mover import Flight, StreamMover
from support.runtime.captured import random_plan
from support.runtime.stream_steps import (
    Layers,
    On,
    captured_problem,
    evicting,
    mean,
    moved_by,
    tight,
    trained,
)

HERE = On("simulated")


class Outcome:
    """Of two steps: whether gradients were right, and what the device has found."""

    def __init__(self, device, right, report):
        self.device = device
        self.right = right
        self.report = report

    @property
    def races(self):
        return {race.kind for race in self.device.races}


def train(prepare=lambda device: None, plan=evicting, **capturing):
    """Take two steps on the simulated device; `prepare` may take waits away from it."""
    model, plain = Layers(), Layers()
    problem = captured_problem(model, **capturing)
    chosen = plan(problem)
    problem = tight(problem, chosen)
    device = SimulatedDevice(problem.platform)
    prepare(device)
    expected = [state["gradients"] for _, state in trained(HERE, plain, steps=2)]
    right = True
    made = follow(model, chosen, problem, FollowOptions(device=device))
    with made, warnings.catch_warnings():
        warnings.simplefilter("ignore", OffloadWarning)
        for turn, state in trained(HERE, model, steps=2):
            found = state["gradients"]
            right &= all(torch.equal(found[name], expected[turn][name]) for name in found)
    return Outcome(device, right, made.report)


def deaf(stream, index):
    """Let a stream ignore the events of another one, given by its number."""
    wait = stream.wait
    stream.wait = lambda event: None if event.stream.index == index else wait(event)


def test_with_all_waits_nothing_is_found():
    outcome = train()
    assert outcome.right
    assert outcome.races == set()
    assert outcome.report.planned


def test_out_must_wait_for_the_operators_that_write():
    assert RaceKind.OPERATORS in train(lambda device: deaf(device.out, 0)).races


def test_back_must_wait_for_the_point_at_which_its_memory_was_taken():
    races = train(lambda device: deaf(device.back, 0)).races
    # By that point compute has waited for the copy out: without it, the reload races that as well.
    assert {RaceKind.ALLOCATION, RaceKind.HOST} <= races


class DropsBeforeTheCopy(StreamMover):
    def _await_sent(self, tensor):
        sent = self._sent.pop(tensor, None)
        if sent is not None:
            sent.flight._data = ()


def test_compute_must_wait_for_a_copy_out_before_the_drop(monkeypatch):
    with moved_by(monkeypatch, DropsBeforeTheCopy):
        outcome = train()
    assert not outcome.right
    assert {RaceKind.FREE, RaceKind.HOST} <= outcome.races


class UsesBeforeTheCopy(StreamMover):
    """Lets nothing wait for copies back, but keeps the bytes as long as the step lasts."""

    def _await(self, step, action, operation):
        self._unawaited.clear()


def test_compute_must_wait_for_a_copy_back_before_the_use(monkeypatch):
    with moved_by(monkeypatch, UsesBeforeTheCopy):
        outcome = train()
    assert not outcome.right
    assert RaceKind.FREE not in outcome.races


class AwaitsNothing(StreamMover):
    """Leaves it to autograd to ask."""

    def _await(self, step, action, operation):
        pass


class AwaitsAndIsAskedNothing(AwaitsNothing):
    def asked_for(self, entry):
        pass


def test_compute_must_wait_for_what_autograd_asks_for_before_its_time(monkeypatch):
    with moved_by(monkeypatch, AwaitsNothing):
        outcome = train()
    assert outcome.right
    assert outcome.races == set()
    assert outcome.report.late_bytes > 0
    with moved_by(monkeypatch, AwaitsAndIsAskedNothing):
        assert not train().right


class ClaimsNothing(StreamMover):
    """Leaves everything to be fetched late."""

    def _claim(self, step, action, operation):
        pass


class FetchesWithoutWaiting(ClaimsNothing):
    def fetch_late(self, step, entry):
        self._bring(step, -2 - id(entry), [entry])

    def asked_for(self, entry):
        pass


def test_compute_must_wait_for_what_is_fetched_late(monkeypatch):
    with moved_by(monkeypatch, ClaimsNothing):
        outcome = train()
    assert outcome.right
    assert outcome.races == set()
    assert outcome.report.late_bytes > 0
    assert "were needed before the plan brought them back" in outcome.report.deviation
    with moved_by(monkeypatch, FetchesWithoutWaiting):
        assert not train().right


class LinkInAnyOrder(StreamMover):
    def _follow_the_link(self, stream):
        pass


def test_a_simplex_link_must_be_followed_in_order(monkeypatch):
    def slow(problem):
        return random_plan(problem.trace, random.Random(1))

    options = {"plan": slow, "link": "simplex", "rates": (1, 3), "duration": 100}
    outcome = train(**options)
    assert outcome.right
    assert outcome.device.crossings == 0
    with moved_by(monkeypatch, LinkInAnyOrder):
        assert train(**options).device.crossings > 0


# The end of a step, and of those that never end.


class NeverEnds(StreamMover):
    def end(self, step, *, complete):
        pass


def given_up(hold):
    """Give a step up while copies are under way, and take another; `hold` its graph meanwhile."""
    model = Layers()
    problem = captured_problem(model, rates=(1, 1), duration=1)
    plan = evicting(problem)
    device = SimulatedDevice(problem.platform)
    # There is room: nothing waits for the copies to the host.
    made = follow(model, plan, problem, FollowOptions(device=device))
    with made, warnings.catch_warnings():
        warnings.simplefilter("ignore", OffloadWarning)
        loss = mean(model, torch.randn(4, 8))
        run = made.follower.run
        under_way = len(run._mover._sent)
        if not hold:
            del loss
            run = None
        mean(model, torch.randn(4, 8)).backward()
        left = 0 if run is None else len(run._mover._sent)
        loss = run = None
        gc.collect()
    return device, under_way, left


def test_a_step_that_ends_must_let_go_of_what_is_under_way(monkeypatch):
    device, under_way, left = given_up(hold=True)
    assert (under_way > 0, left, device.races) == (True, 0, [])
    with moved_by(monkeypatch, NeverEnds):
        _, under_way, left = given_up(hold=True)
    # Memory is held for copies that have long been made.
    assert left == under_way > 0


def test_whatever_is_forgotten_must_be_waited_for(monkeypatch):
    with moved_by(monkeypatch, NeverEnds):
        device, _, _ = given_up(hold=False)
        assert device.races == []
        monkeypatch.setattr(Flight, "__del__", lambda flight: None)
        device, _, _ = given_up(hold=False)
    assert RaceKind.FREE in {race.kind for race in device.races}


def test_the_host_must_be_waited_for_before_an_arena_is_given_back(monkeypatch):
    def unaware(device):
        device.synchronise = lambda: None

    assert RaceKind.CLOSE in train(unaware).races


# Bytes of the host that are used again: the layout keeps them until compute has waited.


def shorter(trace, table) -> HostResidences:
    """Let copies be needed until they are handed over, and not until they are waited for."""
    claims = {}
    for operation, actions in enumerate(table.actions):
        for action in actions:
            if action.act is Act.CLAIM:
                claims[trace.gaps[action.gap].tensor] = operation
    found = []
    for occupant, stay in host_residences_in_streams(trace, table):
        end = max(claims[occupant.index], stay.start + 1)
        found.append((occupant, type(stay)(stay.name, stay.size, stay.start, end)))
    return tuple(found)


def one_after_the_other(problem):
    """Bring a tensor back long before its use, and then let another one leave."""
    first, second = problem.trace.gaps[2], problem.trace.gaps[0]
    claim = first.after - 2
    moves = [
        Move(Kind.OFFLOAD, 2, first.before + 1),
        Move(Kind.PREFETCH, 2, claim),
        Move(Kind.OFFLOAD, 0, claim + 1),
        Move(Kind.PREFETCH, 0, second.after),
    ]
    return Plan(moves)


class FollowsNoLink(StreamMover):
    def _follow_the_link(self, stream):
        pass


def test_bytes_of_the_host_must_not_be_written_before_they_are_read(monkeypatch):
    options = {"plan": one_after_the_other, "link": "simplex", "rates": (9, 1), "duration": 50}
    assert train(**options).races == set()
    monkeypatch.setattr("offcert.runtime.plan.step_plan.host_residences_in_streams", shorter)
    outcome = train(**options)
    # Two tensors share bytes too early; as long as the link is followed, the reader is first.
    assert outcome.report.arena_bytes == outcome.report.arena_load == 128
    with moved_by(monkeypatch, FollowsNoLink):
        assert train(**options).races == {RaceKind.HOST}
