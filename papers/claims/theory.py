"""The offloading paper's theorems, tried on instances: what it says against what is certified.

An experiment sets a number, which the paper's statement gives, against the certified range of the
optimum. Nothing here depends on a profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from offcert.core.documents import Fields, parse_rational, require_format
from papers.claims.evidence import EvidenceRow, Figures
from papers.claims.judge import ALWAYS, Case, Finding, Outcome, judge
from papers.claims.predicates import number

EXPERIMENTS_FORMAT = "offcert-theory"
EXPERIMENTS_VERSION = 1


@dataclass(frozen=True)
class Experiment:
    """An instance on which a theorem says something.

    Attributes
    ----------
    claim : str
        Key of the claim.
    instance : str
        Its name.
    stated : Fraction or None
        The length that the statement is about, in ticks; None if what it speaks of gets stuck and
        is no schedule at all.
    lower, best : int
        Certified range of the optimum, in ticks.
    certificate : str or None
        Path, relative to the folder of the file that holds the experiments; of evidence the digest.
    """

    claim: str
    instance: str
    stated: Fraction | None
    lower: int
    best: int
    certificate: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the experiment as a JSON value."""
        found = {"claim": self.claim, "instance": self.instance, "stated": _written(self.stated)}
        return found | {"lower": self.lower, "best": self.best, "certificate": self.certificate}

    def row(self, certificate: str | None) -> EvidenceRow:
        """Return the experiment as a row of evidence, given its certificate's digest."""
        figures: Figures = {"lower": self.lower, "best": self.best}
        figures = {"stated": _written(self.stated), **figures}
        return EvidenceRow(self.claim, self.instance, figures, certificate)

    @classmethod
    def of(cls, row: EvidenceRow) -> Experiment:
        """Return the experiment that a row of evidence is about.

        Raises
        ------
        InputError
            If a figure is missing or wrong.
        """
        fields = Fields(row.figures, f"the figures of {row.case}")
        stated = _stated(fields)
        bounds = fields.integer("lower", 0), fields.integer("best", 0)
        return cls(row.claim, row.case, stated, *bounds, row.certificate)


@dataclass(frozen=True)
class TheoryClaim:
    """A theorem, lemma or statement about an algorithm; attributes as for `Claim`.

    Attributes
    ----------
    attained : bool
        Whether it holds where a schedule of the stated length exists; otherwise it holds where
        none is shorter.
    shown : str
        The kind of the certificates' numbers.
    """

    key: str
    place: str
    statement: str
    test: str
    attained: bool
    shown: str = "optimum"

    def judge(self, experiments: Sequence[Experiment]) -> Finding:
        """Return the finding of experiments about the claim."""
        own = [experiment for experiment in experiments if experiment.claim == self.key]
        return judge([self._case(experiment) for experiment in own], ALWAYS)

    def _case(self, experiment: Experiment) -> Case:
        stated, lower, best = experiment.stated, experiment.lower, experiment.best
        reached = str(best) if lower == best else f"from {lower} to {best}"
        if stated is None:
            text = f"gets stuck, {self.shown} {reached}"
            return Case(experiment.instance, Outcome.FAILS, None, text)
        if self.attained:
            holds, fails = best <= stated, lower > stated
        else:
            holds, fails = lower >= stated, best < stated
        outcome = Outcome.HOLDS if holds else Outcome.FAILS if fails else Outcome.OPEN
        amount = Fraction(best) / stated if self.attained else stated / best
        text = f"stated {number_of_ticks(stated)}, {self.shown} {reached} ({number(amount)} ×)"
        return Case(experiment.instance, outcome, amount, text)


def _written(stated: Fraction | None) -> str | None:
    return None if stated is None else str(stated)


def _stated(fields: Fields) -> Fraction | None:
    value = fields.get("stated", (str, type(None)))
    return None if value is None else parse_rational(value, fields.path("stated"))


def number_of_ticks(value: Fraction) -> str:
    """Return ticks for people."""
    return str(value) if value.denominator == 1 else f"{float(value):.3f}"


def experiments_from_json(document: Any) -> list[Experiment]:
    """Return the experiments that a JSON value holds.

    Raises
    ------
    InputError
        If a field is missing, wrong or unknown.
    """
    fields = Fields(document)
    require_format(fields, EXPERIMENTS_FORMAT, EXPERIMENTS_VERSION)
    found = [_experiment(item) for item in fields.each("experiments")]
    fields.finish()
    return found


def experiments_to_json(experiments: Sequence[Experiment]) -> dict[str, Any]:
    """Return experiments as a JSON value."""
    return {
        "format": EXPERIMENTS_FORMAT,
        "version": EXPERIMENTS_VERSION,
        "experiments": [experiment.to_json() for experiment in experiments],
    }


def _experiment(item: Fields) -> Experiment:
    experiment = Experiment(
        claim=item.get("claim", str),
        instance=item.get("instance", str),
        stated=_stated(item),
        lower=item.integer("lower", 0),
        best=item.integer("best", 1),
        certificate=item.optional("certificate", (str, type(None))),
    )
    item.finish()
    return experiment


THEORY = (
    TheoryClaim(
        "proposition-1",
        "§3.2, Proposition 1",
        "For a given set of activations and order of transfers, starting everything as early as "
        "data and memory allow is best.",
        "A random chain: no schedule of the certified one's set and order is shorter than its "
        "no-wait schedule. The convention is ours: where an operation and a prefetch could start "
        "at the same time, the operation does. Where it gets stuck, because a prefetch took the "
        "memory that an operation needs, there is no no-wait schedule, though the certified one "
        "has this set and order: the statement fails, by no factor.",
        attained=False,
    ),
    TheoryClaim(
        "proposition-2",
        "§3.2, Proposition 2",
        "Every valid schedule offloads at least as many bytes as are missing where most are "
        "needed, the peak without offloading less the memory.",
        "An instance where any are missing: the certified schedule copies at least so many bytes "
        "to the host.",
        attained=False,
        shown="copied",
    ),
    TheoryClaim(
        "proposition-3",
        "§3.2, Proposition 3",
        "No schedule is shorter than all computing, nor than moving these bytes out and back.",
        "An instance, with atomic, interruptible or fractional transfers: the proved bound is at "
        "least that value.",
        attained=False,
    ),
    TheoryClaim(
        "theorem-1-as-printed",
        "§3.3, Theorem 1, Fig. 2",
        "The instance that the proof builds from a 3-partition instance has a schedule of length "
        "2m if the answer is yes.",
        "A reduction exactly as printed, of an instance whose answer is yes: the certified optimum "
        "is at most 2m (times V).",
        attained=True,
    ),
    TheoryClaim(
        "theorem-1-yes",
        "§3.3, Theorem 1",
        "The same with the sizes V on the next activations (our correction).",
        "A corrected reduction with answer yes: the certified optimum is at most 2m (times V).",
        attained=True,
    ),
    TheoryClaim(
        "theorem-1-no",
        "§3.3, Theorem 1",
        "If the answer is no, the (corrected) instance has no schedule of length 2m.",
        "A corrected reduction with answer no: no schedule is shorter than 2m V + 1.",
        attained=False,
    ),
    TheoryClaim(
        "theorem-2",
        "§4.2, Lemma 1, Lemma 2, Theorem 2",
        "If any part of any activation may move, moving the first ones, as little as possible and "
        "without waiting, is optimal.",
        "A random chain, fractional transfers: the value of that rule (earliest starts by moving "
        "first what is written first, and their mirror image) is attained by a checked schedule "
        "and is a proved bound.",
        attained=True,
    ),
    TheoryClaim(
        "theorem-3-yes",
        "§5.1, Theorem 3, Fig. 3",
        "The instance built from a 2-partition instance has a schedule of length 2 if the answer "
        "is yes, with transfers that may be interrupted.",
        "A reduction with answer yes: the certified optimum is at most the length in question.",
        attained=True,
    ),
    TheoryClaim(
        "theorem-3-no",
        "§5.1, Theorem 3",
        "If the answer is no, it has none.",
        "A reduction with answer no: the certified bound is above the length in question.",
        attained=False,
    ),
    TheoryClaim(
        "lemma-3",
        "§5.1, Lemma 3",
        "With transfers that may be interrupted, every schedule can be turned into an ordered one "
        "(out by increasing, back by decreasing index) of the same length.",
        "An instance: no certified schedule is shorter than the shortest ordered one, as the exact "
        "model of ordered schedules finds it.",
        attained=False,
    ),
    TheoryClaim(
        "algorithm-1",
        "§5.2, §5.3.1, Algorithm 1",
        "Algorithm 1, not discretised, is optimal for Problem 2 (interruptible transfers).",
        "An instance: no certified schedule is shorter than Algorithm 1's.",
        attained=False,
    ),
)
