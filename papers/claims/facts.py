"""Facts of a table: how much it holds, from which version, and its hash."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offcert.core.documents import canonical_digest
from offcert_lab.comparisons.points import CERTIFY, FAILED, plain_rows
from papers.claims.theory import Experiment

if TYPE_CHECKING:
    from pandas import DataFrame

BY_BLOCKS = "by blocks"


@dataclass(frozen=True)
class TableFacts:
    """The facts of the table that the page states.

    Attributes
    ----------
    digest : str
        SHA-256 of the rows and experiments, whatever the files' formats and order.
    rows, failed : int
        Rows, and those whose process died.
    problems, limits, certified : int
        How many, without and with memory limits, and at how many limits ``certify`` was run.
    networks : tuple of str
        Of the zoo.
    images, batches : tuple of int
        All that occur.
    methods, versions, settings : tuple of str
        All that occur; settings are those of ``certify``.
    stages : mapping of str to int
        How many stages a network has, the loss among them, where that is known; with blocks as
        stages, too, called ``"densenet121 by blocks"``.
    """

    digest: str
    rows: int
    failed: int
    problems: int
    limits: int
    certified: int
    networks: tuple[str, ...]
    images: tuple[int, ...]
    batches: tuple[int, ...]
    methods: tuple[str, ...]
    versions: tuple[str, ...]
    settings: tuple[str, ...]
    stages: Mapping[str, int]

    def sentence(self) -> str:
        """Return all of it for people."""
        failed = f", of which {self.failed} failed" if self.failed else ""
        return (
            f"{self.rows} cells{failed}: {self.problems} problems at {self.limits} memory limits "
            f"in all ({_list(map(self._network, self.networks))}; images of "
            f"{_list(self.images)} pixels a side, batches of {_list(self.batches)}), methods "
            f"{_list(self.methods)}, offcert {_list(self.versions)}, `certify` at {self.certified} "
            f"limits, with {' or '.join(self.settings) or 'nothing'}. Table and experiments have "
            f"the digest `{self.digest}`."
        )

    def _network(self, name: str) -> str:
        coarse = self.stages.get(f"{name} {BY_BLOCKS}")
        also = f", by blocks {coarse}" if coarse is not None else ""
        return f"{name} of {self.stages[name]} stages{also}" if name in self.stages else name


def facts_of(
    frame: DataFrame,
    experiments: Sequence[Experiment] = (),
    stages: Mapping[str, int] | None = None,
) -> TableFacts:
    """Return the facts of a table, experiments in its hash; stages by network, if known."""
    rows = plain_rows(frame)
    ordered = sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
    content = {"rows": ordered, "experiments": [item.to_json() for item in experiments]}

    def distinct(name: str) -> tuple[Any, ...]:
        return tuple(sorted({row[name] for row in rows if row[name] is not None}))

    settings = {row["settings"] or "{}" for row in rows if row["method"] == CERTIFY}
    return TableFacts(
        digest=canonical_digest(content),
        rows=len(rows),
        failed=sum(row["status"] == FAILED for row in rows),
        problems=len(distinct("problem")),
        limits=len(distinct("digest")),
        certified=len({row["digest"] for row in rows if row["method"] == CERTIFY}),
        networks=distinct("network"),
        images=distinct("image"),
        batches=distinct("batch"),
        methods=distinct("method"),
        versions=distinct("version"),
        settings=tuple(_settings(text) for text in sorted(settings)),
        stages=stages or {},
    )


def _settings(text: str) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in sorted(json.loads(text).items()))


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items)) or "none"
