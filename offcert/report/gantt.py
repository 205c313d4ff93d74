"""The file with the Gantt chart of a schedule: device and link over the memory curve."""

from __future__ import annotations

from pathlib import Path

from offcert.core.errors import InputError
from offcert.proofs.certificate import Certificate
from offcert.report.gantt_svg import gantt_svg
from offcert.report.svg import require_picture, save


def save_gantt(certificate: Certificate, path: str | Path) -> None:
    """Draw a certificate's schedule into a PNG or SVG file.

    In an SVG file every operation and every transfer says what it is when the mouse rests on it.
    """
    require_picture(path)
    if certificate.result.schedule is None:
        raise InputError("the certificate holds no schedule to draw")
    save(gantt_svg(certificate), path)
