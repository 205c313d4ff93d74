"""Every line of Python and every command on the first page, in tutorials, in training's reference.

In order, as a reader would. A ``console`` block holds commands after ``$ `` and lines that they
print among others. A block that cannot be executed says why in a comment right before it,
``<!-- not executed: reason -->``.
"""

import runpy
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.docs.typed_commands import run_command

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [DOCS / "index.md", DOCS / "training-reference.md", *sorted(DOCS.glob("tutorials/*.md"))]
# Notebooks of the gallery are made of the same blocks.
NOTEBOOKS = runpy.run_path(str(DOCS / "_ext" / "notebooks.py"))
BLOCK, commands = NOTEBOOKS["BLOCK"], NOTEBOOKS["commands_of"]


@dataclass(frozen=True)
class Block:
    """A block of a page, and the number of its first line."""

    kind: str
    text: str
    line: int
    reason: str | None


def blocks(text: str) -> Iterator[Block]:
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("text"))
        yield Block(match["kind"], match["text"], line, match["reason"])


def run_page(text: str, name: str) -> None:
    """Execute the blocks of a page in one namespace, in the folder at hand."""
    namespace: dict[str, object] = {"__name__": "tutorial"}
    for block in blocks(text):
        if block.reason is not None:
            continue
        if block.kind == "console":
            for command, expected in commands(block.text):
                printed = run_command(command)
                for line in expected:
                    assert line in printed.splitlines(), (
                        f"{name}: {command} does not print\n{line}\n\n{printed}"
                    )
        elif block.kind == "python":
            # So that a traceback names the page's line.
            code = compile("\n" * block.line + block.text, name, "exec")
            try:
                exec(code, namespace)
            except Exception as error:
                frames = traceback.extract_tb(error.__traceback__)
                line = [frame.lineno for frame in frames if frame.filename == name][-1]
                pytest.fail(f"{name}, line {line}: {type(error).__name__}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_blocks_are_executed_or_say_why_not(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = list(blocks(text))
    assert text.count("\n```") == 2 * len(found) + 2 * text.count("```{toctree}")
    assert {block.kind for block in found} <= {"python", "console"}
    assert all(block.reason is None or len(block.reason) > 20 for block in found)
    executed = [block for block in found if block.reason is None]
    assert 2 * len(executed) > len(found) or not found


# One page shows what a step does that does not follow its plan.
@pytest.mark.filterwarnings("ignore:(there is no plan for this step|nothing was moved under the)")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_what_a_tutorial_says_happens(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page.read_text(encoding="utf-8"), page.name)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("```python\nvalue = 1\n```\n\n```python\nassert value == 2\n```\n", "page, line 6"),
        ("```console\n$ echo one; echo two\nthree\n```\n", "does not print"),
        ("```console\n$ offcert verify missing.json\n```\n", "exit code 2"),
        ("```console\n$ python benchmarks/simulator.py --no-such-option\n```\n", "exit code 2"),
        ("```console\n$ exit 3; true\n```\n", "exit 3"),
    ],
)
def test_what_does_not_happen_is_found(text: str, fault: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception, SystemExit), match=fault):
        run_page(text, "page")


def test_a_block_with_a_reason_is_left_out() -> None:
    text = "<!-- not executed: there is no GPU here -->\n```python\nassert False\n```\n"
    (block,) = blocks(text)
    assert block.reason == "there is no GPU here"
    run_page(text, "page")
