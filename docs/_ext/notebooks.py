"""Tutorials as notebooks that have been executed, and notebooks as pages of the site.

    python docs/_ext/notebooks.py [NAME ...]

executes the tutorials of the gallery, or some of them, in empty folders, and writes what they
print and draw to ``docs/gallery/*.ipynb``, which Jupyter opens. A page of the site shows one where
it has a comment such as ``<!-- notebook llm -->``.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
GALLERY = DOCS / "gallery"
NAMES = ("optimality", "hard-problems", "training", "llm")
BLOCK = re.compile(
    r"^(?:<!-- not executed: (?P<reason>[^>]*?) -->\n\n?)?```(?P<kind>\w+)\n(?P<text>.*?)^```$\n?",
    re.DOTALL | re.MULTILINE,
)
_COMMENT = re.compile(r"<!-- notebook ([\w-]+) -->")
# Links of a tutorial to others lie in another folder here.
_LINK = re.compile(r"\]\((?=[\w-]+\.md)")
_MORE = re.compile(r"\\\n\s*")
# The time in the title of a picture of a schedule, a gap that a search is to reach, and one that it
# has reached.
_DRAWN = re.compile(r'aria-label="[^"]*: [A-Z]+: ([0-9.]+(?: [mnµ]?s)?)[ ,"]')
_ASKED = re.compile(r"--target-gap ([0-9.]+)%")
_REACHED = re.compile(r"^ +gap +([0-9.]+) %$", re.MULTILINE)
_PICTURE = re.compile(r"-o (\S+\.svg)|\"(\S+\.svg)\"")


def commands_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a console block, and the lines that it is said to print."""
    for part in re.split(r"^\$ ", _MORE.sub("", text), flags=re.MULTILINE)[1:]:
        command, *printed = part.rstrip("\n").split("\n")
        yield command, [line for line in printed if line.strip()]


def cells_of(page: str) -> list[dict[str, Any]]:
    """Return the cells of the notebook that a tutorial is, without outputs, as `nbformat` has them.

    A block of commands is a cell of them; what they print on the page is left out. A block that the
    tutorial says is not executed stays text.
    """
    found: list[dict[str, Any]] = []
    before = 0
    text = ""
    for match in BLOCK.finditer(page):
        text += page[before : match.start()]
        before = match.end()
        if match["reason"] is not None:
            text += f"```{match['kind']}\n{match['text']}```\n"
            continue
        source = match["text"].rstrip("\n")
        if match["kind"] == "console":
            source = "\n".join(f"!{command}" for command, _ in commands_of(source))
        found += [_text_cell(text), _code_cell(source)]
        text = ""
    found.append(_text_cell(text + page[before:]))
    cells = [cell for cell in found if cell["source"]]
    return [{**cell, "id": f"cell-{number}"} for number, cell in enumerate(cells)]


def _text_cell(text: str) -> dict[str, Any]:
    there = _LINK.sub("](../tutorials/", text.strip())
    return {"cell_type": "markdown", "metadata": {}, "source": there}


def _code_cell(source: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": source,
    }


def executed(page: str) -> dict[str, Any]:
    """Return the notebook of a tutorial, executed in the folder at hand."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = cells_of(page)
    for number, cell in enumerate(each for each in cells if each["cell_type"] == "code"):
        cell["execution_count"] = number + 1
        cell["outputs"] = list(_outputs(cell["source"], namespace))
    language = {"name": "python", "display_name": "Python 3", "language": "python"}
    version = {"nbformat": 4, "nbformat_minor": 5}
    return {"cells": cells, "metadata": {"kernelspec": language}} | version


def _outputs(source: str, namespace: dict[str, Any]) -> Iterator[dict[str, Any]]:
    printed = io.StringIO()
    value = None
    if source.startswith("!"):
        for command in source.split("\n"):
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            environment = os.environ | {"PATH": path, "PYTHONPATH": str(DOCS.parent)}
            done = subprocess.run(
                command[1:], shell=True, capture_output=True, text=True, env=environment, check=True
            )
            printed.write(done.stdout)
    else:
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, "tutorial", "exec"), namespace)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), "tutorial", "eval"), namespace)
    if printed.getvalue():
        yield {"output_type": "stream", "name": "stdout", "text": printed.getvalue()}
    for names in _PICTURE.findall(source):
        drawn = Path(next(filter(None, names)))
        if drawn.is_file():
            yield _display({"image/svg+xml": drawn.read_text(encoding="utf-8")})
    if hasattr(value, "_repr_html_"):
        yield _display({"text/html": value._repr_html_(), "text/plain": repr(value)})


def _display(data: dict[str, str]) -> dict[str, Any]:
    return {"output_type": "display_data", "data": data, "metadata": {}}


def faults(notebook: dict[str, Any]) -> list[str]:
    """Sentences about what is wrong with a notebook as a page that tells of one execution.

    A picture of a schedule must show the time that is printed, and a search that was told a gap
    must have had the time to reach it.
    """
    found = []
    outputs = [(cell["source"], each) for cell in notebook["cells"] for each in _of(cell)]
    printed = "".join(output.get("text", "") for _, output in outputs)
    for source, output in outputs:
        drawing = output.get("data", {}).get("image/svg+xml", "")
        for time in _DRAWN.findall(drawing):
            if not re.search(rf"(step time|makespan) +{re.escape(time)}\b", printed):
                found.append(f"a picture shows a step of {time}, which is printed nowhere")
        asked = [float(gap) for gap in _ASKED.findall(source)]
        reached = [float(gap) for gap in _REACHED.findall(output.get("text", ""))]
        # One search after the other; a notebook that prints fewer gaps says less than it was asked.
        for goal, gap in zip(asked, reached, strict=False):
            if gap > goal:
                found.append(f"a search ended with a gap of {gap} %, not {goal} %: more time")
    return found


def _of(cell: dict[str, Any]) -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = cell.get("outputs", [])
    return outputs


def shown(name: str) -> str:
    """Return a notebook of the gallery as Markdown for the site."""
    notebook = json.loads((GALLERY / f"{name}.ipynb").read_text(encoding="utf-8"))
    parts = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(cell["source"])
            continue
        kind = "sh" if cell["source"].startswith("!") else "python"
        source = cell["source"].replace("\n!", "\n").removeprefix("!")
        parts.append(f"```{kind}\n{source}\n```")
        parts += [_shown(output) for output in cell["outputs"]]
    link = f"{{download}}`This page as a notebook <{name}.ipynb>`"
    title, _, rest = "\n\n".join(parts).partition("\n")
    return f"{title}\n\n{link}, executed.\n{rest}\n"


def _shown(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{output['text']}```"
    data = output["data"]
    if "image/svg+xml" in data:
        encoded = base64.b64encode(data["image/svg+xml"].encode()).decode()
        return f'<img alt="" src="data:image/svg+xml;base64,{encoded}">'
    return f"```text\n{data['text/plain']}\n```"


def fill(app: Any, document: str, source: list[str]) -> None:
    """Replace the comment of a page by the notebook that it names."""
    source[0] = _COMMENT.sub(lambda match: shown(match[1]), source[0])


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx."""
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def main(names: Sequence[str]) -> None:
    """Execute tutorials of the gallery, by default all, and write their notebooks."""
    for name in names or NAMES:
        page = (DOCS / "tutorials" / f"{name}.md").read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            notebook = executed(page)
        wrong = faults(notebook)
        if wrong:
            sys.exit(f"{name}: {'; '.join(wrong)}")
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        (GALLERY / f"{name}.ipynb").write_text(text, encoding="utf-8")
        print(f"wrote docs/gallery/{name}.ipynb")


if __name__ == "__main__":
    main(sys.argv[1:])
