"""`offcert place`, and what verify, plot and methods make of addresses."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest

import offcert
from offcert.certification.method import Effort, Method
from offcert.certification.placement_methods import PLACEMENT_METHODS
from offcert.certification.placing import host_problem, place
from offcert.certification.rung import Rung
from offcert.certification.search import PlacementSearch
from offcert.certification.splitting import certify_split
from offcert.cli import main
from offcert.core.documents import canonical_digest, write_json
from offcert.core.errors import InputError
from offcert.core.platform import Kind, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.proofs.certificate import read_certificate
from offcert.proofs.placement_certificate import PlacementCertificate
from offcert.proofs.split_certificate import SplitCertificate
from offcert.questions.placement.files import placement_problem_to_json
from offcert.questions.placement.problem import PlacementProblem, Residence
from offcert.questions.split.menu import Alternative, Menu
from offcert.questions.split.problem import Round, Split, SplitProblem
from support.problems.placements import scheduled

TABLE = "id,lower,upper,size\nx,0,2,4000\ny,1,3,3000\nz,2,4,4000\n"


@pytest.fixture
def table(tmp_path: Path) -> str:
    (tmp_path / "t.csv").write_text(TABLE)
    return str(tmp_path / "t.csv")


@pytest.fixture
def certificate(tmp_path: Path) -> str:
    found = next(each for each in scheduled(60, seed=5) if each.result.schedule.evicted)
    found.write(tmp_path / "c.json")
    return str(tmp_path / "c.json")


def test_a_table_is_placed_written_verified_and_drawn(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed, picture = str(tmp_path / "p.json"), tmp_path / "p.svg"
    assert main(["place", table, "--alignment", "1KiB", "-o", placed]) == 0
    said = capsys.readouterr().out
    assert said.startswith("t: OPTIMAL\n  residences   3\n  load         7.00 KiB (7168 B)\n")
    assert PlacementCertificate.read(placed).result.pool == 7168
    assert main(["verify", placed]) == 0
    said = capsys.readouterr().out
    assert said.startswith(
        "VALID: OPTIMAL\n  pool 7.00 KiB (7168 B), lower bound 7.00 KiB (7168 B) (proved)\n"
        "  3 residences, no two of which overlap\n"
    )
    assert main(["plot", placed, "-o", str(picture)]) == 0
    titles = [e.text or "" for e in ElementTree.parse(picture).iter() if e.tag.endswith("title")]
    assert any(text.startswith("y: 1 to 3, 3.00 KiB at ") for text in titles)
    assert any(text.startswith("lower bound 7.00 KiB") for text in titles)
    # What was placed can be placed again, otherwise.
    assert main(["place", placed, "--alignment", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["objective"] == 7000


def test_offsets_are_written_as_a_table(table: str, tmp_path: Path) -> None:
    assert main(["place", table, "-o", str(tmp_path / "o.csv")]) == 0
    lines = (tmp_path / "o.csv").read_text().splitlines()
    assert lines[0] == "id,lower,upper,size,offset"
    assert lines[1].startswith("x,0,2,4000,")


def test_a_capacity_is_met_or_shown_to_be_too_small(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["place", table, "--capacity", "7000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["objective"], found["capacity"]) == ("OPTIMAL", 7000, 7000)
    assert main(["place", table, "--capacity", "6999B"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("t within 6.83 KiB (6999 B): INFEASIBLE\n")
    assert "pool" not in said
    assert main(["place", table, "--capacity", "6999", "--method", "first-fit"]) == 0
    assert "no addresses within the capacity are known" in capsys.readouterr().out


@pytest.mark.slow
def test_a_certificate_gets_addresses(
    certificate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed = str(tmp_path / "placed.json")
    assert main(["place", certificate, "-o", placed]) == 0
    assert "memory limit" in capsys.readouterr().out
    after, before = read_certificate(placed), read_certificate(certificate)
    assert after.placement is not None
    assert after.result == before.result
    assert main(["verify", placed]) == 0
    said = capsys.readouterr().out
    assert "  addresses " in said
    assert "residences, no two of which overlap" in said
    assert main(["verify", placed, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)["placement"]
    assert summary["objective"] == after.placement.result.pool
    assert summary["bounds"][0]["finding"] == "computed again"
    for suffix in ("svg", "png"):
        picture = str(tmp_path / f"space.{suffix}")
        assert main(["plot", placed, "--addresses", "-o", picture]) == 0
        assert main(["plot", placed, "-o", str(tmp_path / f"gantt.{suffix}")]) == 0
    text = (tmp_path / "space.svg").read_text()
    assert "will leave" in text
    assert "has returned" in text
    assert text != (tmp_path / "gantt.svg").read_text()


def test_a_shortened_schedule_is_said_to_be_one(
    certificate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed = str(tmp_path / "placed.json")
    assert main(["place", certificate, "--shorten", "-o", placed]) == 0
    assert "  schedule     shortened, with the same step time" in capsys.readouterr().out
    after, before = read_certificate(placed), read_certificate(certificate)
    assert after.result.objective == before.result.objective
    assert after.result.schedule != before.result.schedule
    assert main(["verify", placed]) == 0


def test_a_forged_address_is_found_by_the_command(
    certificate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed = tmp_path / "placed.json"
    assert main(["place", certificate, "-o", str(placed)]) == 0
    document = json.loads(placed.read_text())
    for row in document["placement"]["residences"]:
        row["address"] = 0
    placed.write_text(json.dumps(document))
    capsys.readouterr()
    assert main(["verify", str(placed)]) == 1
    assert "overlaps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "load", "--seed", "1"], "method load does not use --seed"),
        (["--method", "lod"], "did you mean load?"),
        (["--capacity", "12%"], 'capacity must look like "6GiB" or "1048576", not "12%"'),
        (["--alignment", "0"], "alignment must be at least 1, not 0"),
        (["-o", "/dev/null/x.json"], "/dev/null is no folder"),
    ],
)
def test_wrong_options_are_refused(
    arguments: list[str], message: str, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["place", table, *arguments]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1


def test_units_that_are_no_bytes_have_no_unit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.json"
    problem = PlacementProblem("p", [Residence("a", 4, 0, 2)], units=offcert.Units())
    write_json(path, placement_problem_to_json(problem))
    assert main(["place", str(path), "--capacity", "4KiB"]) == 2
    assert "needs no unit" in capsys.readouterr().err
    assert main(["place", str(path), "--capacity", "4"]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "format must be one of offcert-certificate, offcert-placement, "),
        ('{"format": "offcert-problem"}', 'not "offcert-problem"'),
        ('{"format": "offcert-placement", "version": 7}', "version 7 of offcert-placement is not"),
    ],
)
def test_what_cannot_be_placed_is_refused(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.json").write_text(text)
    assert main(["place", str(tmp_path / "x.json")]) == 2
    assert message in capsys.readouterr().err


def test_pictures_without_addresses_are_refused(
    certificate: str, table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = str(tmp_path / "x.svg")
    assert main(["plot", certificate, "--addresses", "-o", picture]) == 2
    assert "holds no addresses: `offcert place` finds some" in capsys.readouterr().err
    assert main(["plot", str(tmp_path), "--addresses", "-o", picture]) == 2
    assert "a folder of curves has no addresses" in capsys.readouterr().err
    placed = str(tmp_path / "p.json")
    assert main(["place", table, "--capacity", "1", "-o", placed]) == 0
    assert main(["plot", placed, "-o", picture]) == 2
    assert "holds no addresses to draw" in capsys.readouterr().err


def test_methods_for_addresses_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["placement"]
    assert [row["name"] for row in rows] == list(PLACEMENT_METHODS)
    assert rows[0] == {
        "name": "load",
        "summary": "the most bytes that are taken at a time",
        "evidence": "proved",
        "options": [],
    }
    assert main(["methods"]) == 0
    assert "\n\nload: the most bytes" in capsys.readouterr().out
    assert main(["methods", "--transfers", "atomic", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["placement"] == []


def test_an_interrupt_writes_what_is_known(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.json"
    kept: list[str] = []

    def interrupt(search: PlacementSearch, effort: Effort) -> None:
        search.begin("interrupted")
        kept.append(path.read_text())
        raise KeyboardInterrupt

    rungs = (
        Rung(PLACEMENT_METHODS["load"], 1.0, "a bound"),
        Rung(Method(interrupt), 1.0, "it ends"),
    )
    monkeypatch.setattr("offcert.certification.placement_methods.PLACEMENT_LADDER", rungs)
    assert main(["place", table, "-o", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["interrupted"]
    assert json.loads(kept[0])["settings"]["unfinished"] == "interrupted"
    document = json.loads(path.read_text())
    assert (document["status"], document["lower_bound"]) == ("UNKNOWN", 7000)
    assert document["settings"]["interrupted"]


def test_progress_is_told(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", table, "-v"]) == 0
    errors = capsys.readouterr().err
    assert "bound 6.84 KiB pool - load" in errors
    assert "pool 6.84 KiB gap 0.0000 %" in errors


@pytest.fixture
def step(tmp_path: Path) -> str:
    """A certificate of a step, of two rounds."""
    return step_within(14, tmp_path / "s.json")


def step_within(memory: int, path: Path) -> str:
    uses = [Tensor("a", 6, (0, 3)), Tensor("b", 5, (1, 2))]
    menu = Menu({1: [Alternative("lean", 9), Alternative("fast", 3, 4)]})
    rounds = [
        Round(images, 1, Trace([Operation(f"o{i}", 9, images) for i in range(4)], uses), menu)
        for images in (2, 1)
    ]
    problem = SplitProblem("pair", (Split(rounds),), Platform(memory, Fraction(1)))
    certify_split(problem, time_limit=5, workers=1).write(path)
    return str(path)


def test_every_round_of_a_step_is_placed_and_verified(
    step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed = str(tmp_path / "placed.json")
    assert main(["place", step, "--time-limit", "4", "-o", placed]) == 0
    said = capsys.readouterr().out
    assert said.startswith("round 1 of 2\npair")
    assert said.count("the pool fits") == 2
    found = SplitCertificate.read(placed)
    pools = [part.result.pool or 0 for each in found.rounds if (part := each.certificate.placement)]
    assert len(pools) == 2
    assert main(["place", step, "--method", "greedy-size", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["objective"] == max(pools) <= summary["memory"] == 14
    assert main(["verify", placed]) == 0
    # One address is changed: verification goes through the rounds.
    document = json.loads(Path(placed).read_text())
    part = document["rounds"][1]["certificate"]
    part["placement"]["residences"][0]["address"] = 1
    for each in (part, document):
        del each["digest"]
        each["digest"] = canonical_digest(each)
    Path(placed).write_text(json.dumps(document))
    capsys.readouterr()
    assert main(["verify", placed]) == 1
    assert "rounds[1]: " in capsys.readouterr().out


def test_python_places_a_step_as_the_command_does(step: str) -> None:
    certificate = SplitCertificate.read(step)
    kept: list[SplitCertificate] = []
    placed = offcert.place(certificate, "greedy-size", alignment=2, keep=kept.append)
    assert [each.certificate.placement for each in certificate.rounds] == [None, None]
    assert all(each.certificate.placement.problem.alignment == 2 for each in placed.rounds)
    assert offcert.verify(placed).valid
    # The second round is placed after the first one.
    assert kept[0].rounds[1].certificate.placement is None
    assert (
        kept[-1].rounds[0].certificate.placement.result
        == placed.rounds[0].certificate.placement.result
    )


def test_copies_on_the_host_are_placed_by_themselves(
    certificate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed = str(tmp_path / "host.json")
    assert main(["place", certificate, "--host", "-o", placed]) == 0
    assert "on the host: OPTIMAL" in capsys.readouterr().out
    assert main(["verify", placed]) == 0
    problem, given = PlacementCertificate.read(placed).problem, read_certificate(certificate)
    schedule, trace = given.result.schedule, given.executed.trace
    moved = {trace.gaps[each.gap].tensor: each for each in schedule.transfers}
    assert [each.name for each in problem.residences] == [
        trace.tensors[t].name for t in sorted(moved)
    ]
    assert max(each.end for each in problem.residences) == max(
        each.end for each in schedule.transfers
    )
    assert problem.alignment == 64
    assert main(["place", certificate, "--host", "--alignment", "1", "-o", f"{placed}.csv"]) == 0
    assert len(Path(f"{placed}.csv").read_text().splitlines()) == 1 + len(problem.residences)
    # Rounds of a step follow each other; within 10 bytes one of a and b has to leave.
    step = step_within(10, tmp_path / "s.json")
    assert main(["place", step, "--host", "-o", placed]) == 0
    found, rounds = PlacementCertificate.read(placed).problem, SplitCertificate.read(step).rounds
    lengths = [each.certificate.result.objective for each in rounds]
    assert {each.name[-7:] for each in found.residences} == {"round 1", "round 2"}
    ends = {"1": (0, lengths[0]), "2": (lengths[0], sum(lengths))}
    for each in found.residences:
        begin, end = ends[each.name[-1]]
        assert begin <= each.start < each.end <= end


def test_only_certificates_say_what_is_on_the_host(
    table: str, certificate: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["place", table, "--host"]) == 2
    assert "--host is for certificates of schedules: nothing in" in capsys.readouterr().err
    with pytest.raises(InputError, match="said by certificates of schedules or steps, not by"):
        host_problem(table)  # type: ignore[arg-type]
    found = read_certificate(certificate)
    with pytest.raises(InputError, match="alignment must be at least 1"):
        host_problem(found, 0)
    for what in (place, host_problem):
        with pytest.raises(InputError, match="holds no schedule"):
            what(replace(found, result=replace(found.result, schedule=None)))


def test_a_schedule_is_checked_before_anything_is_made_of_it(certificate: str) -> None:
    found = read_certificate(certificate)
    schedule = found.result.schedule
    # Nobody returns what has not left: no residences follow from that.
    halved = replace(schedule, transfers=[t for t in schedule.transfers if t.kind is Kind.PREFETCH])
    for what in (place, host_problem):
        with pytest.raises(InputError, match="schedule is none of its problem: "):
            what(replace(found, result=replace(found.result, schedule=halved)))


def test_a_step_is_no_table_and_needs_a_schedule(
    step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["place", step, "-o", str(tmp_path / "o.csv")]) == 2
    assert "which has no place for the rounds of a step" in capsys.readouterr().err
    document = replace(SplitCertificate.read(step), split=None, rounds=())
    document.write(step)
    assert main(["place", step]) == 2
    assert "holds no schedule, so there is nothing to be placed" in capsys.readouterr().err
