"""Pictures of three report pages, for docs/pages.md.

    python docs/_ext/screenshots.py [FOLDER]

runs the commands of that page in an empty folder, opens what they write in a headless Chromium, and
writes ``docs/page-*.png``. With a folder, in which they have been run, it only takes the pictures.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.browser import opened  # noqa: E402

# Page, picture, width and height of what it shows, and whether it is dark.
SHOTS = (
    ("sizes", "page-sizes", 1160, 1640, False),
    ("plan", "page-plan", 1160, 1420, False),
    ("plan", "page-telephone", 420, 860, True),
)


def commands() -> list[str]:
    """Return the commands of the page, in their order."""
    text = (ROOT / "docs" / "pages.md").read_text(encoding="utf-8")
    return "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()


def small(png: bytes) -> Image.Image:
    """Return a picture in as many colours as its file can number in a byte."""
    return Image.open(io.BytesIO(png)).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)


def run(folder: Path) -> None:
    """Run the commands of the page in a folder."""
    (folder / "out").mkdir()
    for command in commands():
        print(f"$ {command}", flush=True)
        program = [sys.executable, "-m", "offcert", *command.split()[1:]]
        subprocess.run(program, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)


def shoot(folder: Path) -> None:
    """Take the pictures of the pages in a folder."""
    for page, name, width, height, dark in SHOTS:
        path = folder / "out" / f"{page}.html"
        with tempfile.TemporaryDirectory() as profile, opened(path, Path(profile)) as browser:
            browser.call("Emulation.setScrollbarsHidden", hidden=True)
            browser.shaped(width, height, dark=dark, scale=1.5 if width < 600 else 1)
            browser.value("0", wait="new Promise(done => setTimeout(done, 300))")
            picture = small(browser.picture(width, height))
        picture.save(ROOT / "docs" / f"{name}.png", optimize=True)
        print(f"wrote docs/{name}.png")


def main(given: list[str]) -> None:
    """Run the commands, unless they have been, and take the pictures."""
    if given:
        shoot(Path(given[0]))
        return
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder))
        shoot(Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
