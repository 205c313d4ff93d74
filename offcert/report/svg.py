"""Pictures as SVG, element by element: what draws charts here needs no more than this.

Texts are escaped when the tree is written; characters that XML does not know are replaced.
"""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

Element = ElementTree.Element

# Pixels of a letter of a picture's usual size, 11, on the average. Assumed.
LETTER = 6.3

# What XML 1.0 does not allow, escaped or not; and further control characters, and those that turn
# the direction of writing: a name could hide or forge what stands beside it.
_FORBIDDEN = re.compile(
    "[^\t\n\r\u0020-\u007e\u00a0-\u200d\u2010-\u2027\u202f-\u2065\u206a-\ud7ff\ue000-\ufffd"
    "\U00010000-\U0010ffff]"
)


def clean(text: str) -> str:
    """Return a text without characters that XML forbids, or that would rule what is around them."""
    return _FORBIDDEN.sub("\ufffd", text)


def element(parent: Element | None, tag: str, text: str = "", **attributes: object) -> Element:
    """Append an element, or make the first one.

    Parameters
    ----------
    parent : Element or None
        What it is appended to.
    tag : str
        Its name.
    text : str
        Its text.
    **attributes : object
        Underscores in names stand for hyphens; floats are rounded to a hundredth.
    """
    values = {
        name.rstrip("_").replace("_", "-"): clean(_value(value))
        for name, value in attributes.items()
    }
    if parent is None:
        made = ElementTree.Element(tag, values)
    else:
        made = ElementTree.SubElement(parent, tag, values)
    if text:
        made.text = clean(text)
    return made


def _value(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def write(root: Element) -> str:
    """Return a tree as text that is both XML and HTML: no element without its end."""
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def ticks(largest: float, most: int = 8) -> list[float]:
    """Return round numbers from 0 to at most `largest`, about evenly many for every scale."""
    if largest <= 0:
        return [0.0]
    rough = largest / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [step * count for count in range(math.floor(largest / step * 1.000001) + 1)]
