"""The walks of CONTRIBUTING.md lead along what exists, each on one page; benchmarks have a help."""

from pathlib import Path

from benchmarks.walks import line_of, walks

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_every_step_is_defined_where_the_page_says() -> None:
    found = walks(TEXT)
    assert [len(steps) >= 8 for steps in found.values()] == [True] * 3
    steps = [step for steps in found.values() for step in steps]
    assert [f"{path}:{name}" for path, name in steps if line_of(path, name) is None] == []


def test_each_fits_on_one_page() -> None:
    section = TEXT.partition("\n## Three walks\n")[2].partition("\n## ")[0]
    assert all(len(walk.splitlines()) <= 40 for walk in section.split("\n**From ")[1:])


def test_a_step_that_is_not_there_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text("class One:\n    def two(self) -> None: ...\n")
    text = "\n## Three walks\n\n**A** `some.py:One.two`, `some.py:two`, `no.py:one`\n\n## Rules\n"
    (steps,) = walks(text).values()
    assert [line_of(*step, tmp_path) for step in steps] == [2, None, None]


def test_every_benchmark_that_is_run_says_with_help_what_it_is() -> None:
    run = [path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py")]
    assert all("parse_args" in text for text in run if "__main__" in text)
