"""The command `methods`: what `solve`, `compare` and `place` can run, and what each is for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from offcert.cli.output import show
from offcert.cli.parser import Commands, add_command
from offcert.core.platform import Link
from offcert.questions.schedule.problem import Minimise, Recompute, Transfers

if TYPE_CHECKING:
    from offcert.certification.method import Method

_EXAMPLES = (
    "offcert methods",
    "offcert methods --transfers fractional --json",
    "offcert methods --recompute any",
)


def add(commands: Commands) -> None:
    """Add the command."""
    from offcert.cli.arguments import MINIMISE, RECOMPUTE
    from offcert.cli.searching import TRANSFERS

    summary = "list the methods that solve, compare and place run, and what each is for"
    parser = add_command(commands, "methods", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "--transfers", choices=TRANSFERS, help="only methods for these transfers (default: all)"
    )
    parser.add_argument(
        "--recompute",
        choices=RECOMPUTE,
        help="only methods for problems in which this may run again (default: all)",
    )
    parser.add_argument(
        "--minimise",
        choices=MINIMISE,
        help="only methods for problems in which this is to be least (default: all)",
    )


def _run(options: argparse.Namespace) -> int:
    from offcert.certification.methods import METHODS
    from offcert.certification.placement_methods import PLACEMENT_METHODS

    rows = [
        row
        for row in (_row(name, method) for name, method in METHODS.items())
        if options.transfers in (None, *row["transfers"])
        and options.recompute in (None, *row["recompute"])
        and options.minimise in (None, *row["minimise"])
    ]
    # What is asked of schedules does not concern addresses.
    asked = {options.transfers, options.recompute, options.minimise} != {None}
    placing = [] if asked else [_said(*each) for each in PLACEMENT_METHODS.items()]
    blocks = [_text(row, ", ".join(_fits(row))) for row in rows]
    blocks += [_text(row, "addresses (offcert place)") for row in placing]
    show(options, {"methods": rows, "placement": placing}, "\n\n".join(blocks))
    return 0


def _said(name: str, method: Method) -> dict[str, Any]:
    return {
        "name": name,
        "summary": method.summary,
        "evidence": method.evidence,
        "options": [f"--{setting.replace('_', '-')}" for setting in method.reads],
    }


def _row(name: str, method: Method) -> dict[str, Any]:
    return {
        **_said(name, method),
        "network": method.network,
        "transfers": [str(kind) for kind in Transfers if kind in method.transfers],
        "links": [str(link) for link in Link if link in method.links],
        "recompute": [str(kind) for kind in Recompute if kind in method.recompute],
        "minimise": [str(kind) for kind in Minimise if kind in method.minimise],
        "offload": [kind for kind in (True, False) if kind in method.offload],
        "takes": [
            {"name": each.name, "default": each.default, "summary": each.summary}
            for each in method.takes
        ],
    }


def _fits(row: dict[str, Any]) -> Iterator[str]:
    """Yield the problems that a method is for: networks, transfers, links, what may be chosen."""
    transfers, links = row["transfers"], row["links"]
    yield row["network"]
    yield "any transfers" if len(transfers) > 2 else f"{' or '.join(transfers)} transfers"
    yield "any link" if len(links) > 1 else f"{links[0]} links"
    if "none" not in row["recompute"]:
        yield f"recompute {' or '.join(row['recompute'])}"
    elif len(row["recompute"]) > 1:
        yield "any recompute"
    if row["minimise"] == ["memory"]:
        yield "least memory"
    elif len(row["minimise"]) > 1:
        yield "least time or memory"
    if row["offload"] == [False]:
        yield "where nothing may leave"
    elif row["offload"] == [True]:
        yield "where tensors may leave"


def _text(row: dict[str, Any], fits: str) -> str:
    return "\n".join(
        [
            f"{row['name']}: {row['summary']}",
            f"  for       {fits}",
            f"  evidence  {row['evidence']}",
            f"  options   {' '.join(row['options']) or 'none'}",
            *(
                f"  takes     {each['name']}={each['default']}: {each['summary']}"
                for each in row.get("takes", ())
            ),
        ]
    )
