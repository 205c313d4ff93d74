"""Certificates for other people's checkers that were changed: each change is refused."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest

import offcert
from offcert.core.result import Bound
from offcert.proofs.joint_document import pack
from offcert_lab.checkers.bounds import export_bound
from support.oracles.vipr import FaultError, proved_by
from support.problems.joint import joint_proofs, unpacked


@cache
def by_cases() -> tuple[offcert.Problem, Bound]:
    """Return a problem and a bound of it that is proved by cases."""
    return next(
        (problem, bound)
        for problem, bound, _ in joint_proofs("joint-lp")
        if "tree" in unpacked(bound)
    )


@cache
def written() -> str:
    """Return a certificate by cases."""
    problem, bound = by_cases()
    return export_bound(problem, [bound], "vipr").files[".vipr"]


def once(pattern: str, change: Callable[[re.Match[str]], str], text: str) -> str:
    changed = re.sub(pattern, change, text, count=1, flags=re.MULTILINE)
    assert changed != text
    return changed


FORGERIES = {
    "a larger bound": (
        r"RTP range (\d+)",
        lambda m: f"RTP range {int(m[1]) + 1}",
        "the last constraint is not the bound",
    ),
    "a multiplier": (
        r"rnd (\d+) (\d+) (\S+)",
        lambda m: f"rnd {m[1]} {m[2]} {Fraction(m[3]) * 2}",
        "does not follow|cannot be rounded",
    ),
    "a sign": (
        r"rnd (\d+) (\d+) (\S+) (\d+) (\S+)",
        lambda m: f"rnd {m[1]} {m[2]} {-Fraction(m[3])} {m[4]} {m[5]}",
        "wrong signs",
    ),
    "a right side": (
        r"^compute_0 ([GE]) (\d+)",
        lambda m: f"compute_0 {m[1]} {int(m[2]) - 9}",
        "does not follow",
    ),
    "a weaker decision": (
        r"(derived\d+) L 0 (1 \d+ 1 { asm })",
        lambda m: f"{m[1]} L -1 {m[2]}",
        "these are not all cases|does not follow",
    ),
    "one case twice": (
        r"uns (\d+) (\d+) (\d+) (\d+)",
        lambda m: f"uns {m[1]} {m[2]} {m[1]} {m[2]}",
        "these are not all cases",
    ),
    "the other case's result": (
        r"uns (\d+) (\d+) (\d+) (\d+)",
        lambda m: f"uns {m[3]} {m[2]} {m[1]} {m[4]}",
        "rests on assumptions",
    ),
    "what comes later": (
        r"rnd 1 (\d+)|rnd (\d+) (\d+)",
        lambda m: f"{m[0][: m[0].rindex(' ')]} 99999",
        "out of its range",
    ),
    "a part of a gap": (
        r"^INT (\d+)\n0 ",
        lambda m: f"INT {int(m[1]) - 1}\n",
        "cannot be rounded",
    ),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_what_was_changed_is_refused(what: str) -> None:
    text = written()
    pattern, change, message = FORGERIES[what]
    assert proved_by(text) > 0
    with pytest.raises(FaultError, match=message):
        proved_by(once(pattern, change, text))


def test_numbers_changed_at_random_prove_no_more() -> None:
    """Of derivations any number may be another one: what is still accepted is still the bound."""
    text, value = written(), by_cases()[1].value
    start = text.index("DER ")
    rng = random.Random(5)
    refused = 0
    numbers = [
        m for m in re.finditer(r"(?<=[ \n])-?\d+(/\d+)?(?=[ \n])", text) if m.start() > start
    ]
    for _ in range(300):
        chosen = rng.choice(numbers)
        other = str(Fraction(chosen[0]) + rng.choice((-1, 1, 2, Fraction(1, 3))))
        forged = text[: chosen.start()] + other + text[chosen.end() :]
        try:
            assert proved_by(forged) == value
        except FaultError:
            refused += 1
    assert refused > 200


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda proof: proof["tree"].pop(), "proof.tree ends before all cases are there"),
        (lambda proof: proof["tree"].append(0), r"proof.tree\[\d+\] follows the end of the tree"),
        (lambda proof: proof["multipliers"].pop(), r"proof.tree\[\d+\] must be below \d+, not"),
        (lambda proof: proof["tree"].__setitem__(0, [0, 99]), "does not run again in span 0"),
        (lambda proof: proof["multipliers"].__setitem__(0, {"over": 1}), "its weights prove"),
    ],
)
def test_a_proof_that_does_not_hold_is_not_written(
    change: Callable[[dict[str, object]], object], message: str
) -> None:
    problem, bound = by_cases()
    proof = unpacked(bound)
    change(proof)
    forged = replace(bound, details={**bound.details, "proof": pack(proof)})
    with pytest.raises(offcert.InputError, match=message):
        export_bound(problem, [forged], "vipr")
