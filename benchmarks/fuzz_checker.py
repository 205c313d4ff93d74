"""The checker in one file beside `offcert.verify`: the same word on certificates and on forgeries.

    python benchmarks/fuzz_checker.py --count 20000 --forgeries 5 -o out/fuzz-checker.json

Small random problems get a certificate each: traces, some of passes between which nothing is away,
and chains, on either link and with all kinds of transfers; networks in which computations may run
again, for least time or least memory. A certificate has the schedule of one method, and bounds of
up to two. Only the trees of cases of joint-lp are limited by time; all else that a seed makes is
the same on every machine. Each certificate, and copies of it in which one number is changed at
random, in packed proofs too, and hash and digest are made to fit again, are given to both. Bounds
that `check/offcert_check.py` does not know are taken out before. Every disagreement is printed with
the seed that makes it.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import random
import sys
import warnings
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

from offcert.certification.methods import solve
from offcert.core.chain import Chain
from offcert.core.documents import canonical_digest, write_json
from offcert.core.errors import InputError, MethodError, NoPlanError
from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.instances.checkpoint_instances import RecomputeNetworks
from offcert.proofs.joint_document import pack, unpack
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers
from offcert.verification.document import verify

CHECKER = Path(__file__).parent.parent / "check" / "offcert_check.py"
# Methods whose bounds the checker knows, and methods that find a schedule, by whether computations
# may run again. The limits of searches are arbitrary: plans need not be good here.
_BOUNDS = {False: ("bounds",), True: ("joint-lp",)}
_PLANS = {
    False: ("pivot", "local-search:patience=1", "greedy", "sequential"),
    True: ("joint-search:coolings=1:steps=100", "arbitrary-graph"),
}
# Seconds; arbitrary. The tree of cases of joint-lp grows as long as it may, all others end before.
_LIMITS = {"joint-lp": 0.3}
_LIMIT = 20.0


def checker() -> ModuleType:
    """Return the checker as a module; it imports nothing of ours."""
    spec = importlib.util.spec_from_file_location("offcert_check", CHECKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULE = checker()


def drawn(seed: int) -> Problem:
    """Return a small random problem."""
    rng = random.Random(seed)
    if seed % 10 == 4:
        network = RecomputeNetworks(blocks=rng.choice((1, 1, 1, 2))).problem(seed)
        limited = network.with_memory(f"{rng.randint(0, 100)}%")
        return replace(limited, minimise=Minimise.MEMORY) if seed % 40 == 34 else limited
    network = _chain(rng) if seed % 5 == 3 else _trace(rng)
    rate, back = (Fraction(rng.randint(1, 6), rng.randint(1, 4)) for _ in range(2))
    link = rng.choice(list(Link))
    platform = Platform(0, rate, link, back if rng.random() < 0.3 else None)
    transfers = rng.choices(list(Transfers), (6, 1, 1))[0]
    problem = Problem(f"random {seed}", network, platform, transfers=transfers)
    least, peak = problem.trace.least_memory, problem.trace.peak_memory
    part = Fraction(rng.randint(-1, 8), rng.choice((8, 16)))
    return problem.with_memory(max(0, least + int((peak - least) * part)))


def _trace(rng: random.Random) -> Trace:
    count = rng.randint(3, 9)
    operations = [
        Operation(f"o{o}", rng.choice((0, 1, 2, 5)), rng.choice((0, 0, 3))) for o in range(count)
    ]
    tensors = []
    for number in range(rng.randint(2, 7)):
        uses = sorted(rng.sample(range(-1, count), rng.randint(1, min(4, count))))
        if uses == [-1]:
            uses = [-1, 0]
        tensors.append(Tensor(f"t{number}", rng.choice((0, 1, 2, 4, 7)), uses, rng.random() < 0.8))
    return _passes(operations, tensors, rng)


def _passes(operations: list[Operation], tensors: list[Tensor], rng: random.Random) -> Trace:
    """Return a trace, in one case of three as several passes after a first operation."""
    passes = rng.choice((1, 1, 1, 1, 2, 3))
    if passes == 1:
        return Trace(operations, tensors)
    ones, rows, length = [Operation("first", 1, 0)], [], len(operations)
    for number in range(passes):
        ones += [replace(each, name=f"{each.name} {number}") for each in operations]
        for each in tensors:
            # What was there at the start is used by the operation before the pass.
            uses = tuple(use + 1 + number * length for use in each.uses)
            rows.append(replace(each, name=f"{each.name} {number}", uses=uses))
    rows.append(Tensor("gradients", rng.choice((0, 2)), (0, len(ones) - 1), evictable=False))
    return Trace(ones, rows)


def _chain(rng: random.Random) -> Chain:
    stages = rng.randint(2, 5)

    def numbers(count: int, most: int) -> list[int]:
        return [rng.randint(0, most) for _ in range(count)]

    rows = (numbers(stages, 4), numbers(stages, 6), numbers(stages + 1, 8), numbers(stages + 1, 4))
    return Chain(*rows, numbers(stages, 3), numbers(stages, 3))


def known_part(document: dict[str, Any]) -> dict[str, Any]:
    """Return a certificate without the bounds that the checker does not know."""
    known = (*MODULE.KNOWN, MODULE.JOINT)
    bounds = [
        bound
        for bound in document["bounds"]
        if bound["method"] in known and bound["evidence"] == "proved"
    ]
    best, objective = max((bound["value"] for bound in bounds), default=0), document["objective"]
    changed = {**document, "bounds": bounds, "lower_bound": best}
    if objective is not None:
        gap = Fraction(objective - best, max(objective, 1))
        changed["gap"] = f"{gap.numerator}/{gap.denominator}"
        changed["status"] = "OPTIMAL" if objective == best else "FEASIBLE"
    return signed(changed)


def signed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document whose hash and digest fit what it says."""
    changed = {**document, "problem_sha256": canonical_digest(document["problem"])}
    changed.pop("digest", None)
    return {**changed, "digest": canonical_digest(changed)}


def certificate(seed: int) -> dict[str, Any] | None:
    """Return a document about a random problem; None if no method that is drawn suits it."""
    problem, rng = drawn(seed), random.Random(seed)
    again = problem.recompute is not Recompute.NONE
    bounds, plans = list(_BOUNDS[again]), list(_PLANS[again])
    rng.shuffle(plans)
    documents = []
    for methods, most in ((plans, 1), (rng.sample(bounds, rng.randint(1, len(bounds))), 2)):
        found = 0
        for method in methods:
            try:
                made = solve(problem, method, time_limit=_LIMITS.get(method, _LIMIT), workers=1)
            except (MethodError, NoPlanError, InputError):
                continue
            documents.append(made.to_json())
            found += 1
            if found == most:
                break
    if not documents:
        return None
    together = {
        (bound["method"], bound["value"]): bound for each in documents for bound in each["bounds"]
    }
    return known_part({**documents[0], "bounds": list(together.values())})


def forged(document: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a copy in which one number is changed, and hash and digest fit again."""
    changed = copy.deepcopy(document)
    packed = [bound["details"] for bound in changed["bounds"] if "proof" in bound["details"]]
    if packed and rng.random() < 0.5:
        details = rng.choice(packed)
        proof = unpack(details["proof"], "proof")
        _change(proof, rng)
        details["proof"] = pack(proof)
    else:
        _change(changed, rng)
    return signed(changed)


def _change(value: Any, rng: random.Random) -> None:
    places: list[tuple[Any, Any]] = []
    _numbers(value, places)
    holder, key = rng.choice(places)
    if isinstance(holder[key], str):
        holder[key] = f"{rng.randint(1, 6)}/{rng.randint(1, 4)}"
    else:
        holder[key] = max(-1, holder[key] + rng.choice((-3, -2, -1, 1, 2, 3)))


def _numbers(value: Any, places: list[tuple[Any, Any]]) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if key in ("settings", "versions", "source", "version", "program"):
            continue
        if type(item) is int or (key in ("gap", "bandwidth") and isinstance(item, str)):
            places.append((value, key))
        elif isinstance(item, dict | list):
            _numbers(item, places)


def compared(document: dict[str, Any]) -> tuple[str, str]:
    """Return how both agree on a document, and what each says where they do not."""
    found = MODULE.check(document)
    try:
        verification = verify(document)
        valid, faults = verification.valid, verification.faults
    except InputError as error:
        valid, faults = False, [str(error)]
    mine = "wrong" if found.wrong else "unknown" if found.unknown else "holds"
    said = f"here: {found.wrong or found.unknown or 'holds'}; verify: {faults or 'valid'}"
    if mine == "unknown":
        return ("not known here, valid" if valid else "not known here, not valid"), said
    if (mine == "holds") is valid:
        return f"both: {'valid' if valid else 'not valid'}", said
    return "DISAGREEMENT", said


def _count(kind: str, document: dict[str, Any], seed: int, outcomes: Counter[str]) -> None:
    outcome, said = compared(document)
    outcomes[f"{kind}: {outcome}"] += 1
    if outcome == "DISAGREEMENT":
        print(f"seed {seed}, {kind}: {said}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the comparison; return 1 if there is a disagreement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="certificates (%(default)s)")
    parser.add_argument("--forgeries", type=int, default=5, help="of each (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    outcomes, made, seed = Counter[str](), 0, options.seed
    while made < options.count:
        document = certificate(seed)
        if document is not None:
            made += 1
            rng = random.Random(seed)
            _count("true", document, seed, outcomes)
            for _ in range(options.forgeries):
                _count("forged", forged(document, rng), seed, outcomes)
            if made % 1000 == 0:
                print(f"{made} certificates, seeds up to {seed}: {dict(outcomes)}", flush=True)
        seed += 1
    for outcome, count in sorted(outcomes.items()):
        print(f"{outcome:40} {count}")
    if options.output is not None:
        write_json(options.output, dict(outcomes))
    return int(any("DISAGREEMENT" in outcome for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
