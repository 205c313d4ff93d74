"""SVG pictures, element by element.

Texts are escaped when the tree is written; characters that XML does not know are replaced.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from offcert.core.documents import write_bytes, write_text
from offcert.core.errors import InputError

Element = ElementTree.Element

# Pixels of a letter of a picture's usual size, 11, on the average. Assumed.
LETTER = 6.3
# Pixels of the margins beside pictures with an axis of time. Arbitrary.
LEFT, RIGHT = 84, 28


@dataclass(frozen=True)
class Axes:
    """Where moments and bytes are on a picture."""

    width: int  # Of the picture in pixels.
    end: int  # The latest moment shown.
    largest: int  # The most bytes shown.
    # Where the panel of bytes begins, and its pixels.
    top: float
    height: int
    begin: int = 0  # The first moment shown.

    def x(self, time: float) -> float:
        """Return the horizontal coordinate of a moment."""
        part = (float(time) - self.begin) / (self.end - self.begin)
        return LEFT + part * (self.width - LEFT - RIGHT)

    def y(self, size: float) -> float:
        """Return the vertical coordinate of a number of bytes."""
        return self.top + self.height * (1 - float(size) / self.largest)

    @property
    def bottom(self) -> float:
        """Where the panel of bytes ends."""
        return self.top + self.height


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
    """Append an element to its parent, or make the first one.

    Underscores in names of attributes stand for hyphens; floats are rounded to a hundredth.
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


def drawing(width: int, height: int, title: str, size: int, **attributes: str) -> Element:
    """Return an empty white picture, in pixels, with a title for people who cannot see it."""
    root = element(
        None,
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        **attributes,
        font_family="system-ui, sans-serif",
        font_size=size,
        role="img",
        aria_label=title,
    )
    element(root, "rect", width=width, height=height, fill="#ffffff")
    return root


def _value(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def write(root: Element) -> str:
    """Return a tree as text that is both XML and HTML: no element without its end."""
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


FORMATS = ("svg", "png")
# Pixels of a PNG file for each of the SVG's. Arbitrary.
_ZOOM = 1.5
# The family of letters in PNG files.
_FONT = "DejaVu Sans"


def require_picture(path: str | Path) -> str:
    """Return the kind of picture that a file's name asks for, ``"svg"`` or ``"png"``."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InputError(f"{path} must end in .png or .svg")
    return kind


def save(root: Element, path: str | Path) -> None:
    """Write a picture into an SVG file, or what that looks like into a PNG file.

    The same picture gives the same SVG file, byte by byte.
    """
    if require_picture(path) == "svg":
        write_text(path, f'<?xml version="1.0" encoding="UTF-8"?>\n{write(root)}\n')
    else:
        write_bytes(path, _pixels(write(root)))


def _pixels(text: str) -> bytes:
    if not letters_are_drawn(_rendered):
        raise InputError(
            "a PNG file needs letters, and this machine has no fonts: install some, as "
            "fonts-dejavu-core, or write an SVG file"
        )
    return _rendered(text)


def _rendered(text: str) -> bytes:
    import resvg_py

    drawn = resvg_py.svg_to_bytes(svg_string=text, zoom=_ZOOM, sans_serif_family=_FONT)
    return bytes(drawn)


def letters_are_drawn(rendered: Callable[[str], bytes]) -> bool:
    """Whether a renderer finds a font: without one it leaves out all letters."""
    empty, letter = (drawing(20, 20, "", 12) for _ in range(2))
    element(letter, "text", "a", x=4, y=14)
    return rendered(write(empty)) != rendered(write(letter))


def ticks(largest: float, most: int = 8) -> list[float]:
    """Return round numbers from 0 to at most `largest`, about evenly many for every scale."""
    if largest <= 0:
        return [0.0]
    rough = largest / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [step * count for count in range(math.floor(largest / step * 1.000001) + 1)]
