"""Puts the page into which certificates are dropped beside the site's own pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from offcert.report.page import write_page


def write(app: Any, error: Exception | None) -> None:
    """Write the page, with links into the site."""
    if error is None and app.builder.format == "html":
        write_page([], Path(app.outdir) / "viewer.html", docs="./")


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
