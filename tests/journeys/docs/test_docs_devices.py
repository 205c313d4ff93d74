"""The page about formats for several devices says all that its readers ask for."""

import dataclasses
import json
import re
from pathlib import Path

from offcert.certification.devices import certify_devices
from offcert.proofs.any_certificate import Notes, Settings
from offcert.proofs.devices_certificate import ResourceProof
from support.docs.docs_pages import READING, ROOT, fields, keys
from support.problems.devices import three_layers

NAMES = (
    "questions/devices/problem.py",
    "proofs/devices_certificate.py",
    "proofs/any_certificate.py",
)
# The page about certificates explains these, which all kinds have.
OF_ALL = {each.name for kind in (Settings, Notes) for each in dataclasses.fields(kind)}


def test_every_field_is_explained() -> None:
    sources = "".join((ROOT / "offcert" / name).read_text() for name in NAMES)
    asked = set(READING.findall(sources)) | set(ResourceProof.record().forms)
    asked |= set(re.findall(r'\.read_(?:all|in)\(\w+, "(\w+)"', sources))
    # A flat object is a table: `Record(Gradient, name=TEXT, ...)`.
    tables = re.findall(r"Record\(\w+, (.*)\)", sources)
    asked |= {name for table in tables for name in re.findall(r"(\w+)=", table)}
    assert {"gradients", "ready", "last_use", "alone", "steps", "multipliers"} <= asked
    assert asked <= fields("devices") | {"details"} | OF_ALL


def test_what_is_written_is_explained() -> None:
    document = json.loads(json.dumps(certify_devices(three_layers(), time_limit=1).to_json()))
    free = ("versions", "settings", "step", "steps", "jobs")
    assert keys(document, free) <= fields("devices")
    for job in document["schedule"]["jobs"]:
        assert set(job) <= fields("devices")


def test_the_paper_table_names_every_case() -> None:
    """The tables on the page are those of the benchmark: a row a case."""
    source = Path(ROOT, "benchmarks", "devices.py").read_text()
    cases = re.findall(r'^    Case\("([^"]+)"', source, re.MULTILINE)
    page = Path(ROOT, "docs", "theory", "several-gpus.md").read_text()
    assert len(cases) > 8
    assert all(page.count(f"| {case} |") >= 2 for case in cases)
