"""Compare times on a machine with bounds and forecasts: bound <= measured <= 1.05 x forecast.

python benchmarks/measured_machine.py FOLDER [--time-limit SECONDS] [--json FILE]

FOLDER holds certificates of problems that were profiled on one machine, and `measured.json`, whose
rows name a certificate (`way`) and the milliseconds that its plan took (`ms`). Whatever rates of
the link the problems had, they get those that were measured (`source.measurement.link`): alone the
best of all readings of this machine, since one of them may have been disturbed; at once those of
the problem's own. The plan that was followed is timed again, and the problem is certified anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.certification.ladder import certify
from offcert.core.documents import read_json, write_json
from offcert.core.platform import Link, Platform
from offcert.proofs.certificate import Certificate, read_certificate
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from offcert.runtime.hardware.bandwidth import LinkReading, Rates

_NS_PER_SECOND = 10**9
_NS_PER_MS = 10**6


def reading_of(problem_source: Mapping[str, Any]) -> LinkReading:
    """Return the rates of a link that the source of a measured problem has."""
    link = problem_source["measurement"]["link"]
    found = {
        name: Rates(*(Fraction(rate, _NS_PER_SECOND) for rate in link[name]))
        for name in ("alone", "together", "computing")
        if name in link
    }
    return LinkReading(**found)


def on_measured_link(platform: Platform, own: LinkReading, all_: Iterable[LinkReading]) -> Platform:
    """Return a platform with the best rates of all readings, and its own while both run."""
    best = [each.rates for each in all_]
    out, back = max(each.out for each in best), max(each.back for each in best)
    found = Platform(platform.memory, out, own.link, back, platform.sharing)
    if own.link is Link.SIMPLEX or own.busy is None:
        return found
    return replace(found, busy_bandwidth=own.busy.out, busy_prefetch_bandwidth=own.busy.back)


def row_of(
    certificate: Certificate, readings: Iterable[LinkReading], measured_ms: float, seconds: float
) -> dict[str, Any]:
    """Return the milliseconds that a certificate says, and those by the measured rates of the link.

    `was_said` and `was_proved` are the certificate's, `forecast` is of its plan, `bound` and
    `objective` are of a search.
    """
    problem = certificate.problem
    own = reading_of(problem.source or {})
    problem = replace(problem, platform=on_measured_link(problem.platform, own, readings))
    result = certificate.result
    runs = problem if result.execution is None else problem.executed(result.execution)
    assert isinstance(result.schedule, Schedule)
    followed = simulate(runs, result.schedule.plan(certificate.executed.trace)).makespan
    anew = certify(replace(problem, uncertainty=None), time_limit=seconds).result
    said = {
        "was_said": result.objective,
        "was_proved": result.proved_bound,
        "forecast": followed,
        "bound": anew.proved_bound,
        "objective": anew.objective,
    }
    found = {name: None if ns is None else ns / _NS_PER_MS for name, ns in said.items()}
    return {**found, "measured": measured_ms}


def main() -> None:
    """Print a line for each certificate that was followed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    measured = read_json(options.folder / "measured.json")["rows"]
    took = {row["way"]: row["ms"] for row in measured if row["way"].endswith(".json")}
    certificates = {name: read_certificate(options.folder / name) for name in took}
    sources = [each.problem.source or {} for each in certificates.values()]
    readings = [reading_of(source) for source in sources]
    rows = []
    for name, certificate in certificates.items():
        row = row_of(certificate, readings, took[name], options.time_limit)
        rows.append({"certificate": name, **row})
        print(json.dumps(rows[-1]))
    if options.json is not None:
        write_json(options.json, {"rows": rows})


if __name__ == "__main__":
    main()
