"""Sections of docs/claims.md that have a benchmark each: cut out, and put back in."""

from __future__ import annotations

from pathlib import Path

from offcert.core.documents import write_atomically


def section_of(page: str, heading: str) -> str:
    """Return a section with its heading, up to the next one or the end; "" if there is none."""
    _, found, rest = page.partition(f"\n{heading}\n")
    own = rest.partition("\n## ")[0].rstrip()
    return f"{heading}\n{own}\n" if found else ""


def replaced(page: str, heading: str, section: str) -> str:
    """Return a page with a section in the place of what has its heading, or at the end."""
    before, _, rest = page.partition(f"\n{heading}\n")
    following = rest.partition("\n## ")[1:]
    parts = [before, section, "".join(following)]
    return "\n".join(part.strip("\n") + "\n" for part in parts if part.strip())


def replace_section(path: Path, heading: str, section: str) -> None:
    """Put a section in its place on a page, which is a file."""
    text = replaced(path.read_text(encoding="utf-8"), heading, section)
    write_atomically(path, lambda part: _write(part, text))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
