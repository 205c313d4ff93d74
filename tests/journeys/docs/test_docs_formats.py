"""The pages about formats: their examples are read, and every field is explained."""

import json
import re
from pathlib import Path

import pytest

import offcert
from offcert.campaign.storage import read_rows
from offcert.core.documents import read_json
from offcert.core.errors import InputError
from offcert.instances.library import Library
from offcert.questions.placement.files import _COLUMNS
from offcert.questions.schedule.files import problem_from_json
from offcert.questions.schedule.training_files import training_from_json, training_to_json
from offcert.questions.schedule.training_record import ERRORS
from support.docs.docs_pages import DOCS, FORMATS, READING, ROOT, fields, json_blocks, keys
from support.problems.joint_certificates import checkpointed, least_memory_certificate

READERS = {
    "problem": ("questions/schedule/files.py", "core/platform.py"),
    "certificate": ("proofs/certificate.py", "proofs/schedule_json.py"),
    "library": ("instances/library.py", "instances/records.py"),
}


@pytest.mark.parametrize("page", READERS)
def test_every_field_that_a_reader_asks_for_is_explained(page: str) -> None:
    sources = "".join((ROOT / "offcert" / name).read_text() for name in READERS[page])
    asked = set(READING.findall(sources))
    assert len(asked) > 10
    assert asked <= fields(page)


def test_every_field_of_networks_and_executions_is_explained() -> None:
    source = (ROOT / "offcert" / "core" / "network_json.py").read_text()
    asked = set(READING.findall(source))
    assert {"computations", "repeatable", "lean", "runs", "program"} <= asked
    assert asked <= fields("problem") | fields("certificate")
    assert {"runs", "program", "execution"} <= fields("certificate")


def test_fields_of_a_certificate_with_an_execution_are_explained() -> None:
    for certificate in (checkpointed(), least_memory_certificate(45)):
        document = certificate.to_json()
        trace = document["execution"].pop("trace")
        free = ("problem", "versions", "settings", "details")
        assert keys(document, free) <= fields("certificate")
        assert keys(trace, ()) <= fields("problem")
        assert keys(document["problem"], ("source",)) <= fields("problem")


def test_every_field_of_documents_about_addresses_is_explained() -> None:
    names = ("questions/placement/files.py", "proofs/placement_certificate.py")
    asked = set(READING.findall("".join((ROOT / "offcert" / name).read_text() for name in names)))
    assert {"residences", "capacity", "alignment", "addresses", "address"} <= asked
    # Gaps are refused, by their column.
    asked -= {"gaps"}
    assert asked - {"address"} <= fields("placement")
    assert asked - {"addresses"} <= fields("certificate") | fields("problem")
    (block,) = json_blocks("placement")
    document = json.loads(block)
    verification = offcert.verify(document)
    assert verification.valid, verification.faults
    assert document["problem"]["capacity"] == 8
    assert keys(document, ("versions", "settings", "details")) <= fields("placement") | fields(
        "certificate"
    )
    columns = {column for column in _COLUMNS if column != "gaps"}
    page = (FORMATS / "placement.md").read_text()
    assert all(f"`{column}`" in page for column in columns)


def test_another_version_is_refused_as_the_page_says() -> None:
    page = " ".join((FORMATS / "index.md").read_text().split())
    (sentence,) = re.findall(r"by its number: `(.*?)`", page)
    document = json.loads(json_blocks("problem")[0])
    with pytest.raises(InputError, match=re.escape(sentence)):
        problem_from_json(document | {"version": 2})
    with pytest.raises(InputError, match=r'"memroy" is not known'):
        problem_from_json(document | {"memroy": 20})


def test_the_problems_on_the_page_are_read_and_their_fields_explained() -> None:
    documents = [json.loads(block) for block in json_blocks("problem")]
    assert len(documents) == 4
    read = [problem_from_json(document) for document in documents]
    assert [problem.least_memory for problem in read] == [17, 7, 9, 24]
    assert [problem.peak_memory for problem in read] == [28, 10, 13, 28]
    written = [offcert.questions.schedule.files.problem_to_json(problem) for problem in read]
    for document in (*documents, *written):
        assert keys(document, ("source",)) <= fields("problem")


def test_the_certificate_on_the_page_is_valid_and_its_fields_explained() -> None:
    (block,) = json_blocks("certificate")
    document = json.loads(block)
    verification = offcert.verify(document)
    assert verification.valid, verification.faults
    assert verification.certificate.result.objective == 24
    assert document["problem"]["chain"]["forward"] == [3, 2, 2, 1]
    # The settings and the proofs are from the registry; what claims hold besides is statistics.
    free = ("problem", "versions", "settings", "details")
    published = [json.loads(path.read_text()) for path in (DOCS / "certificates").glob("*-*.json")]
    assert any("pieces" in (each["schedule"] or {}) for each in published)
    for each in (document, *published):
        assert keys(each, free) <= fields("certificate")


def test_the_family_on_the_page_is_a_library_and_its_fields_explained(tmp_path: Path) -> None:
    (block,) = json_blocks("library")
    (tmp_path / "four.json").write_text(block)
    entry = Library(tmp_path).entry("four-m28")
    assert entry.record.value == entry.record.proved_bound == 24
    free = ("problem", "details")
    assert keys(json.loads(block), free) <= fields("library")


def test_the_training_report_on_the_page_is_read_and_its_fields_explained() -> None:
    (block,) = json_blocks("training")
    document = json.loads(block)
    record = training_from_json(document)
    assert training_to_json(record) == document
    assert record.errors()["time"] == 1 / 15
    assert keys(document, ("versions",)) - {"format", "version"} <= fields("training")
    assert set(ERRORS) == set(document["errors"])


def test_the_table_on_the_page_is_read_and_its_columns_explained(tmp_path: Path) -> None:
    (block,) = json_blocks("table")
    path = tmp_path / "table.json"
    path.write_text(block)
    rows = read_rows(path)
    assert [row["makespan"] for row in rows] == [24, 21]
    assert set(rows[0]) <= fields("table")
    assert keys(read_json(path), ()) <= fields("table") | {"format", "version", "rows"}
