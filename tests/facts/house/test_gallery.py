"""Notebooks of the gallery tell of one execution each, which had the time that it needed."""

import copy
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[3] / "docs"
NOTEBOOKS = runpy.run_path(str(DOCS / "_ext" / "notebooks.py"))


def notebook(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DOCS / "gallery" / f"{name}.ipynb").read_text())
    return read


@pytest.mark.parametrize("name", NOTEBOOKS["NAMES"])
def test_a_page_tells_of_one_execution(name: str) -> None:
    assert NOTEBOOKS["faults"](notebook(name)) == []


@pytest.mark.parametrize("name", ["llm", "optimality"])
def test_a_picture_of_another_execution_is_found(name: str) -> None:
    forged = copy.deepcopy(notebook(name))
    texts = [
        output
        for cell in forged["cells"]
        for output in cell.get("outputs", [])
        if "step time" in output.get("text", "") or "makespan" in output.get("text", "")
    ]
    assert texts
    for output in texts:
        output["text"] = output["text"].replace("step time    ", "step time    9")
        output["text"] = output["text"].replace("makespan ", "makespan 9")
    (fault,) = NOTEBOOKS["faults"](forged)
    assert fault.startswith("a picture shows a step of ")
    assert fault.endswith("which is printed nowhere")


def test_a_search_that_had_too_little_time_is_found() -> None:
    source = "!offcert certify p.json --target-gap 5% -o c.json"
    output = {"output_type": "stream", "text": "  lower bound  9\n  gap          32.2058 %\n"}
    cells = [{"cell_type": "code", "source": source, "outputs": [output]}]
    assert NOTEBOOKS["faults"]({"cells": cells}) == [
        "a search ended with a gap of 32.2058 %, not 5.0 %: more time"
    ]
    output["text"] = output["text"].replace("32.2", "4.2")
    assert NOTEBOOKS["faults"]({"cells": cells}) == []
