"""Check docs/claims.md against its evidence: verdicts, figures and certificates.

    make claims
    python benchmarks/claims_check.py [SECTION ...] [--again]

For every claim it says the verdict on the page, how many certificates were verified, how many are
known by their digests alone, how many figures were computed again, and every disagreement: between
page and figures, figures and certificates, and what the papers' algorithms do now. With `--again`
everything is made again first, in hours, and held against what is there. Exit code 1 says that
there is a disagreement.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from offcert.core.errors import InputError
from papers.claims.evidence import EvidenceFile, evidence_path, read_evidence
from papers.claims.evidence_check import ClaimCheck, check_section

DOCS = Path(__file__).parent.parent / "docs"
# The benchmark of each section: it judges, computes again what no certificate holds, and makes all.
SECTIONS = {
    "offloading": "claims_table",
    "theory": "claims_theory",
    "recomputation": "claims_recomputation",
    "figures": "claims_figures",
    "combined": "claims_combined",
    "program": "claims_program",
    "modnn": "claims_modnn_check",
    "layers": "claims_layers",
    "field": "claims_field",
}


def checks(
    names: Sequence[str], docs: Path, again: bool, progress: Callable[[str], None]
) -> Iterator[ClaimCheck]:
    """Yield the check of every claim of some sections.

    Parameters
    ----------
    names : sequence of str
        Of `SECTIONS`.
    docs : Path
        Folder of the page and its evidence.
    again : bool
        Whether everything is made again first.
    progress : callable
        Told what is being done.
    """
    page = (docs / "claims.md").read_text(encoding="utf-8")
    for name in names:
        section = import_module(SECTIONS[name])
        evidence = known(section, name, docs)
        judges, computed = section.judges(evidence), section.stated_again()
        yield from check_section(evidence, page, judges, computed, progress)
        if again:
            progress(f"{name}: making everything again ({evidence.command})")
            yield from _made_again(section, evidence, section.evidence(), page, progress)


def known(section: Any, name: str, docs: Path) -> EvidenceFile:
    """Return the evidence of a section; without a file, what else the section has published."""
    path = evidence_path(docs, name)
    if path.exists():
        return read_evidence(path)
    published: EvidenceFile = section.published(docs)
    return published


def _made_again(
    section: Any,
    evidence: EvidenceFile,
    made: EvidenceFile,
    page: str,
    progress: Callable[[str], None],
) -> Iterator[ClaimCheck]:
    newer = {(row.claim, row.case): row for row in made.rows}
    judges, computed = section.judges(made), section.stated_again()
    for check in check_section(made, page, judges, computed, progress):
        older = evidence.of(check.claim)
        check.claim += ", made again"
        for row in older:
            found = newer.get((row.claim, row.case))
            fault = "it was not made again" if found is None else contradiction(row, found)
            if fault is not None:
                check.disagreements.append(f"{row.case}: {fault}")
        yield check


def contradiction(one: Any, other: Any) -> str | None:
    """Return how the ranges of two rows about the same case exclude each other, or None."""
    for low, high in ((one, other), (other, one)):
        lower, best = low.figures.get("lower"), high.figures.get("best")
        if lower is not None and best is not None and lower > best:
            return f"at least {lower} in one certificate, and {best} in the other"
    return None


def main(arguments: Iterable[str] | None = None) -> int:
    """Check, print a line a claim and each disagreement, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], metavar="SECTION")
    parser.add_argument("--again", action="store_true", help="make everything again first")
    parser.add_argument("--docs", type=Path, default=DOCS)
    options = parser.parse_args(None if arguments is None else list(arguments))
    wrong = claims = 0
    try:
        names = options.sections or list(SECTIONS)
        for check in checks(names, options.docs, options.again, _say):
            print(check.summary, flush=True)
            for each in check.disagreements:
                print(f"  DISAGREEMENT {each}", flush=True)
            claims += 1
            wrong += bool(check.disagreements)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{claims} claims, {wrong} with a disagreement")
    return int(wrong > 0)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
