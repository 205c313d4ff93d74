"""Published throughputs beside predicted ones: the command on a tiny row, and the page."""

from __future__ import annotations

import importlib
import json
import re
import runpy
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from offcert import profile
from offcert.runtime.workloads.configured import training_step

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "benchmarks" / "plausibility.py"
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "vocab_size": 13,
    "num_hidden_layers": 1,
}


def test_a_row_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {
        "name": "tiny",
        "model": CONFIG,
        "card": "a10",
        "batch": 3,
        "sequence": 8,
        "dtype": "bf16",
        "unit": "tokens",
        "published": 1000,
        "source": "https://example.org",
    }
    rows, out = tmp_path / "rows.json", tmp_path / "out.json"
    rows.write_text(json.dumps([row]))
    monkeypatch.setattr(sys, "argv", list(map(str, [SCRIPT, "--rows", rows, "-o", out])))
    runpy.run_path(str(SCRIPT), run_name="__main__")
    (found,) = json.loads(out.read_text())["rows"]
    step = training_step(CONFIG, 3, 8)
    seconds = profile(step, hardware="a10", name="tiny").trace.compute_time / 1e9
    assert found["predicted"] == pytest.approx(24 / seconds)
    assert found["ratio"] == pytest.approx(24 / seconds / 1000)
    # Nothing of this size multiplies for as long as its kernels take to start.
    assert found["products_alone"] > 10 * found["predicted"]
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("| [tiny](https://example.org) | 3 × 8 | tokens/s | ")
    assert line.endswith(f" | 1,000 | {found['ratio']:.2f} | {found['calibrated_ratio']:.2f} |")
    slow = profile(step, hardware="a10-calibrated", name="tiny").trace.compute_time / 1e9
    assert found["calibrated"] == pytest.approx(24 / slow)


def test_the_page_has_every_published_number() -> None:
    rows = runpy.run_path(str(SCRIPT))["ROWS"]
    page = (ROOT / "docs" / "models.md").read_text()
    lines = re.findall(
        r"^\| \[(.+?)\]\((\S+)\) \|.* \| ([\d.,]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.M
    )
    said = [(name, source, float(number.replace(",", ""))) for name, source, number, *_ in lines]
    shown = [(r.name, r.source, round(r.published, 0 if r.published >= 100 else 1)) for r in rows]
    assert said == shown


class Reaching:
    """A step that takes one time at the best rates, of which a part is of products."""

    def __init__(self, published: float, products: float) -> None:
        self.published, self.products = published, products

    def ratio(self, *, sustained: Fraction) -> float:
        return 1 / (self.published * (1 - self.products + self.products / float(sustained)))


def test_the_part_that_training_reaches_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    plausibility_fit = importlib.import_module("plausibility_fit")
    part = Fraction(62, 100)
    rows = [Reaching(1 / (1 - p + p / float(part)), p) for p in (0.2, 0.5, 0.8, 1.0)]
    assert plausibility_fit.fit(rows) == part
    # One row that is something else does not count for more than the others.
    assert plausibility_fit.fit([*rows, Reaching(5.0, 1.0)]) == part
    first, second, last = plausibility_fit.held_out(rows)
    assert first.startswith("0.62 by 2 rows; the other 2 are off by 0.0% in the median, 0% at most")
    assert second.startswith("0.62 by 2 rows")
    # (0.8 + 0.2 / 0.62 and 0.2 + 0.8 / 0.62) - 1, in the middle.
    assert second.endswith("at the best rates by 30.6%")
    assert last == "0.62 by all rows"
