"""The report page in headless Chromium: used by mouse and keys, and read."""

import json
import random
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from offcert.certification.methods import solve
from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.files import problem_to_json
from offcert.questions.schedule.problem import Problem
from offcert.report.page import PageDocument, write_page
from offcert.verification.document import verify
from support.browser import Page, installed, opened
from support.problems.long_schedules import long_certificate
from support.problems.training_records import made

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(installed() is None, reason="no Chromium (Debian: chromium-headless-shell)"),
]
CHAIN = Chain([30, 40], [40, 20], [10, 2, 1], [0, 0, 0], [0, 8])


def certificate(memory: int) -> Certificate:
    return solve(Problem("<b>evil</b>", CHAIN, Platform(memory, Fraction(1, 5))), "sequential")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Three limits of one problem, a report of training, and a schedule of 10,000 operations."""
    folder = tmp_path_factory.mktemp("page")
    found = [certificate(memory) for memory in (13, 21, 30)]
    shown = [PageDocument(f"{each.problem.platform.memory}", each, verify(each)) for each in found]
    write_page(
        [*shown, PageDocument("training", made()), PageDocument("long", long_certificate())],
        folder / "report.html",
    )
    with opened(folder / "report.html", folder / "profile") as page:
        yield page


def choose(page: Page, number: int) -> None:
    page.value(f"document.getElementById('plan').value = '{number}'")
    page.value("document.getElementById('plan').dispatchEvent(new Event('change'))")


def test_a_click_on_the_schedule_holds_what_happens_then(page: Page) -> None:
    choose(page, 0)
    assert page.text("#title") == "<b>evil</b>"
    assert page.text("#said") == "The fastest plan there is: proved"
    assert page.text("#checked") == "Verified for this page"
    assert page.text("#tiles").split("\n")[:2] == ["step", "180"]
    # By hand: F_0 from 0 to 30, x0 leaves from 0 to 50, F_1 from 50 to 90.
    page.click("#gantt .u-over", 20 / 180)
    assert page.text("#running").splitlines() == [
        "device: forward F0, 0 ticks to 30 ticks",
        "link: offload x0, 0 ticks to 50 ticks",
    ]
    assert page.text("#moment").endswith("on the device 12 units, limit 13 units")
    assert page.text("#inside").split() == ["x0", "10", "units", "x1", "2", "units"]
    # It is held while the mouse moves, and let go by a key.
    page.move("#memory .u-over", 70 / 180)
    assert "F0" in page.text("#running")
    page.key("Escape", 27)
    page.move("#memory .u-over", 71 / 180)
    assert page.text("#running") == "device: forward F1, 50 ticks to 90 ticks"
    assert "workspace of F1 8 units" in " ".join(page.text("#inside").split())
    assert "x0" not in page.text("#inside")


def test_the_slider_shows_the_plan_of_each_limit(page: Page) -> None:
    choose(page, 0)
    box = page.box("#slider")
    page.press(box["x"] + box["width"] - 3, box["y"] + box["height"] / 2)
    assert page.text("#limit") == "30 units"
    assert page.text("#tiles").split("\n")[:2] == ["step", "130"]
    assert page.value("document.getElementById('plan').value") == "2"
    assert "offload" not in page.text("#legend")
    # A click on the curve's left end, where the least limit is, goes back.
    page.click("#curve .u-over", 0.02)
    assert page.text("#limit") == "13 units"
    assert "offload" in page.text("#legend")


def test_a_drag_zooms_both_pictures_and_buttons_do(page: Page) -> None:
    choose(page, 0)
    page.drag("#gantt .u-over", 0.25, 0.5)

    # What the cursor shows at the left and right end says how far it is zoomed.
    def moment(across: float, where: str = "#memory") -> float:
        page.move(f"{where} .u-over", across)
        return float(page.text("#moment").split()[0])

    page.key("Escape", 27)
    assert moment(0.002) == pytest.approx(45, abs=1)
    assert moment(0.998, "#gantt") == pytest.approx(90, abs=1)
    page.click("#whole")
    assert moment(0.998) == pytest.approx(180, abs=1)
    page.click("#in")
    assert moment(0.002) == pytest.approx(45, abs=1)
    assert moment(0.998) == pytest.approx(135, abs=1)
    page.click("#whole")


def test_one_of_ten_thousand_operations_is_found_by_its_name(page: Page) -> None:
    choose(page, 4)
    certificate = long_certificate()
    wanted = random.Random(1).randrange(4000)
    name = certificate.problem.trace.operations[wanted].name
    schedule = certificate.result.schedule
    assert schedule is not None
    page.type("#find", name)
    assert page.text("#found").startswith("1 of ")
    middle = (schedule.starts[wanted] + schedule.ends[wanted]) / 2
    assert page.text("#moment").split()[1] == "ms:"
    assert float(page.text("#moment").split()[0]) == pytest.approx(middle / 1e6, rel=1e-4)
    assert f"forward {name}, " in page.text("#running")
    page.value("document.getElementById('find').value = ''")
    page.type("#find", "no such thing")
    assert page.text("#found") == "nothing has this name"


def test_training_has_planned_above_measured(page: Page) -> None:
    choose(page, 3)
    assert page.text("#said") == "planned 15 ns, measured 18 ns (+20.00 %) on a device"
    page.click("#gantt .u-over", 12.5 / 18)
    assert page.text("#running").splitlines() == [
        "device, planned: backward B:b, 11 ns to 15 ns",
        "device, measured: waits, 9 ns to 14 ns",
        "link, measured: prefetch, 9 ns to 14 ns",
    ]
    assert "planned 12 B" in page.text("#moment")
    assert page.value("document.getElementById('bounds-part').hidden")


def test_nothing_failed_and_nothing_was_asked_of_the_network(page: Page) -> None:
    assert page.errors == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []


def test_the_same_without_verification_does_not_say_proved(tmp_path: Path) -> None:
    found = certificate(13)
    write_page([PageDocument("c", found)], tmp_path / "r.html")
    with opened(tmp_path / "r.html", tmp_path / "profile") as page:
        assert page.text("#said").endswith("(says the file)")
        assert page.text("#checked") == "Not verified for this page"
        assert "proved, says the certificate" in page.text("#bounds")
        assert "not checked for this page" in page.text("#bounds")


def answer() -> dict[str, Any]:
    """Return an answer of doctor about one size, which fits with a plan."""
    way = {"name": "save_on_cpu", "step": 3000, "peak": 10, "host": 50, "fits": True}
    size = {
        "asked": {"batch": 4},
        "samples": 4,
        "device_memory": 100,
        "fits_without_plan": False,
        "peak": 120,
        "peak_operation": "B:a very long name of an operation, as networks have them",
        "at_peak": {"parameters": 30, "saved": 70, "workspace": 20},
        "computing": 1000,
        "step": 1100,
        "lower_bound": 1050,
        "samples_per_second": 4e9 / 1100,
        "host_bytes": 20,
        "gap": 0.045,
        "why_not": None,
        "short": None,
        "other_ways": [way],
        "budgets": [{"needed": 30}, {"needed": 70}],
    }
    asked = {"batch": 4}
    document = {"format": "offcert-doctor", "version": 1, "title": "net", "interrupted": False}
    document |= {"hardware": "rtx-4090", "attention": None, "notes": []}
    return document | {"sizes": [size], "largest": asked, "fastest": asked}


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_cut_off_on_a_telephone(page: Page, tmp_path: Path, dark: bool) -> None:
    write_page([PageDocument("d", answer())], tmp_path / "doctor.html")
    with opened(tmp_path / "doctor.html", tmp_path / "profile") as other:
        for each, plans in ((page, range(5)), (other, range(1))):
            each.shaped(420, 900, dark=dark)
            for number in plans:
                choose(each, number)
                width = each.value("document.documentElement.scrollWidth")
                assert width <= 420, (number, each.value("document.title"))
                wide = (
                    "[...document.querySelectorAll('canvas')].map(c => c.getBoundingClientRect())"
                )
                assert max(each.value(f"{wide}.map(box => box.right)")) <= 420
                back = each.value("getComputedStyle(document.body).backgroundColor")
                assert (int(re.findall("[0-9]+", back)[0]) < 64) == dark
            each.shaped(1200, 1600)
        assert other.errors == []
    choose(page, 0)
    assert page.value("document.querySelector('#gantt canvas').getBoundingClientRect().width") > 900


def test_sizes_of_doctor_are_a_page_of_their_own(tmp_path: Path) -> None:
    write_page([PageDocument("d", answer())], tmp_path / "doctor.html")
    with opened(tmp_path / "doctor.html", tmp_path / "profile") as page:
        assert page.text("#said") == "Fits with a plan up to batch 4"
        assert "fits with a plan" in page.text("#sizes")
        assert "saved for the backward pass 70 B" in page.text("#stacks")
        assert page.text("#ways-list").count("fits") == 2
        assert page.value("document.querySelectorAll('#ways canvas').length") == 1
        assert page.value("document.getElementById('picture-part').hidden")
        assert page.errors == []


def drop(page: Page, name: str, text: str) -> None:
    """Drop a file with this text on the page, and wait until it has been read."""
    page.value(
        "{const all = new DataTransfer();"
        f"all.items.add(new File([{json.dumps(text)}], {json.dumps(name)}));"
        "dispatchEvent(new DragEvent('drop', {dataTransfer: all, cancelable: true}));}"
    )
    page.value("0", wait="new Promise(done => setTimeout(done, 100))")


def test_a_file_that_is_dropped_is_shown_without_server_or_network(tmp_path: Path) -> None:
    write_page([], tmp_path / "viewer.html")
    found = certificate(13)
    with opened(tmp_path / "viewer.html", tmp_path / "profile") as page:
        assert page.text("#empty h1") == "Drop a certificate or a problem here"
        drop(page, "c.json", json.dumps(found.to_json()))
        assert page.text("#title") == "<b>evil</b>"
        assert page.text("#said") == "The fastest plan there is: proved (says the file)"
        assert "proved, says the certificate" in page.text("#bounds")
        page.click("#gantt .u-over", 20 / 180)
        assert page.text("#running").splitlines() == [
            "device: forward F0, 0 ticks to 30 ticks",
            "link: offload x0, 0 ticks to 50 ticks",
        ]
        drop(page, "p.json", json.dumps(problem_to_json(found.problem)))
        assert page.text("#said") == "Needs 8 more than the limit without a plan"
        assert page.value("document.getElementById('plan').options.length") == 2
        drop(page, "x.json", '{"format": "nonsense"}')
        assert page.text("#problem").startswith("x.json cannot be shown: it is an nonsense")
        assert page.text("#said") == "Needs 8 more than the limit without a plan"
        assert page.errors == []
        assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
