"""Mathematics as MathML, which browsers draw by themselves: no script, nothing from a network."""

from __future__ import annotations

import re
from functools import cache
from typing import Any
from xml.etree import ElementTree as ET

from docutils import nodes
from latex2mathml.converter import convert

_NAMESPACE = "http://www.w3.org/1998/Math/MathML"
_PRIME = "\N{PRIME}"
# LaTeX that the converter misreads, and LaTeX of the same meaning that it reads: white space after
# a backslash, the numbers of equations (written right behind them otherwise), and aligned rows.
_INSTEAD = (
    (re.compile(r"\s+"), " "),
    (re.compile(r"\\tag\{([^}]*)\}"), r"\\qquad \\text{(\1)}"),
    (re.compile(r"\{aligned\}"), "{align*}"),
)
# Large brackets, which it leaves by their names.
_BRACKETS = {
    r"\{": "{",
    r"\}": "}",
    r"\lceil": "⌈",
    r"\rceil": "⌉",
    r"\lfloor": "⌊",
    r"\rfloor": "⌋",
}

ET.register_namespace("", _NAMESPACE)


@cache
def mathml(latex: str, *, block: bool) -> str:
    """Return LaTeX mathematics as a ``<math>`` element, by itself on a line or within one.

    Raises
    ------
    ValueError
        If a command of it is not known to the converter, which then would stand there as it is.
    """
    text = latex
    for pattern, instead in _INSTEAD:
        text = pattern.sub(instead, text)
    root = ET.fromstring(convert(text, display="block" if block else "inline"))
    for element in list(root.iter()):
        _mend(element, block)
    written = ET.tostring(root, encoding="unicode")
    if "\\" in written:
        raise ValueError(f"mathematics cannot be converted: {latex}")
    return written


def _mend(element: Any, block: bool) -> None:
    """Mend what the converter makes of brackets, primes and sets that a maximum is over."""
    tag = element.tag.removeprefix(f"{{{_NAMESPACE}}}")
    parts = list(element)
    element.text = _BRACKETS.get(element.text or "", element.text)
    if block and tag == "msub" and parts[0].text in ("max", "min"):
        element.tag = f"{{{_NAMESPACE}}}munder"
    elif tag in ("msup", "msubsup") and parts[-1].text == _PRIME:
        base = ET.Element(f"{{{_NAMESPACE}}}mrow")
        prime = ET.Element(f"{{{_NAMESPACE}}}mo", {"lspace": "0", "rspace": "0"})
        prime.text = _PRIME
        base.extend([parts[0], prime])
        element.tag = f"{{{_NAMESPACE}}}{'mrow' if tag == 'msup' else 'msub'}"
        element[:] = [base, *parts[1:-1]]


def _visit(translator: Any, node: Any) -> None:
    translator.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def _visit_block(translator: Any, node: Any) -> None:
    # Room for brackets that stand out: the theme lets formulas scroll.
    style = "padding: 0.3em 0; overflow-y: hidden"
    formula = mathml(node.astext(), block=True)
    translator.body.append(f'<div class="math" style="{style}">{formula}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx."""
    app.add_html_math_renderer("mathml", (_visit, None), (_visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
