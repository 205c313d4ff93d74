"""The least cost of what runs again: proved by cases, beside all choices, and forged."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest

from offcert.certification.saving import choose
from offcert.proofs.saving import Limit, Name, Saving, SavingCase
from offcert.verification.saving import proved_cost
from support.seeds import by_seeds


def drawn(seed: int) -> tuple[Saving, list[Limit]]:
    """Return a random graph of six operators, each of which makes one storage, and a budget."""
    rng = random.Random(seed)
    count = 6
    reads = {
        f"o{i}": [f"s{j}" for j in rng.sample(range(i), min(i, rng.randint(0, 2)))]
        for i in range(count)
    }
    sizes: dict[Name, int] = {f"s{i}": rng.randint(1, 9) for i in range(count)}
    times: dict[Name, int] = {f"o{i}": rng.randint(1, 50) for i in range(count)}
    # One that may not run again, and one that may not be saved.
    del times["o1"], sizes["s4"]
    makers: dict[Name, Name] = {f"s{i}": f"o{i}" for i in range(count)}
    needs: list[Name] = [f"s{i}" for i in range(count) if i % 2 or rng.random() < 0.5]
    again = {work: [*reads[str(work)]] for work in times}
    saving = Saving(sizes, makers, times, again, needs)
    return saving, [(sizes, rng.randint(sizes["s1"], sum(sizes.values())))]


def least(saving: Saving, limits: list[Limit]) -> int | None:
    """Return the least cost of all choices; what runs again follows from what is saved."""
    best = None
    names = list(saving.sizes)
    for chosen in product((False, True), repeat=len(names)):
        saved = {name for name, each in zip(names, chosen, strict=True) if each}
        if any(sum(sizes.get(name, 0) for name in saved) > most for sizes, most in limits):
            continue
        wanted, runs = list(saving.needs), set[Name]()
        while wanted:
            name = wanted.pop()
            work = saving.makers[name]
            if name in saved or work in runs:
                continue
            runs.add(work)
            wanted += saving.reads.get(work, ())
        if runs <= saving.times.keys():
            cost = sum(saving.times[work] for work in runs)
            best = cost if best is None else min(best, cost)
    return best


@pytest.mark.parametrize("seed", range(20))
def test_what_is_proved_is_what_is_said_and_no_more_than_the_least(seed: int) -> None:
    saving, limits = drawn(seed)
    best, found = least(saving, limits), choose(saving, limits, 10)
    if best is None or found.bound is None:
        assert best is found.bound is None
        return
    assert proved_cost(saving, limits, found.cases) == found.bound == best


def changed(rng: random.Random, cases: list[SavingCase]) -> list[SavingCase]:
    """Return cases of which one is left out, decides something else, or counts facts otherwise."""
    place = rng.randrange(len(cases))
    case, way = cases[place], rng.randrange(3)
    if way == 0 or not (case.decided if way == 1 else case.multipliers):
        return cases[:place] + cases[place + 1 :]
    if way == 1:
        decided = {each: rng.randint(0, 1) for each in case.decided}
        cases[place] = replace(case, decided=decided)
        return cases
    factors = {fact: each * rng.choice((-1, 0, 1, 2, 9)) for fact, each in case.multipliers.items()}
    cases[place] = replace(case, multipliers=factors)
    return cases


@by_seeds(0, 60, 60)
def test_no_change_of_a_proof_proves_more_than_the_least(seeds: range) -> None:
    refused = lower = several = 0
    for seed in seeds:
        saving, limits = drawn(seed)
        best, found = least(saving, limits), choose(saving, limits, 10)
        if best is None:
            continue
        several += len(found.cases) > 1
        for attempt in range(6):
            value = proved_cost(
                saving, limits, changed(random.Random(f"{seed} {attempt}"), [*found.cases])
            )
            refused += value is None
            assert value is None or value <= best
            lower += value is not None and value < best
    assert min(refused, lower, several) >= 5, (refused, lower, several)
