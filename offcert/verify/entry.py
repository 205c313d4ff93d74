"""`offcert.verify`: verifies what holds a certificate, whatever it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.proofs.certificate import Certificate
from offcert.verify import document as documents
from offcert.verify.document import Verification
from offcert.verify.limits import UNLIMITED, Limits


def verify(
    certificate: str | PathLike[str] | Certificate | Mapping[str, Any],
    limits: Limits = UNLIMITED,
) -> Verification:
    """Compute everything that a certificate claims again, as far as that is possible.

    Parameters
    ----------
    certificate : str, path, Certificate or mapping
        A file, a certificate, or the JSON value of one.
    limits : Limits
        Seconds and memory that it may take; by default any.

    Returns
    -------
    Verification
        Its `valid`, `faults`, and the evidence for each bound.

    Raises
    ------
    InputError
        If the file cannot be read, or what it holds is no certificate.
    BeyondLimitsError
        If the file is larger than the limits allow.
    """
    if not isinstance(limits, Limits):
        raise InputError(f"limits must be Limits, not {short_repr(limits)}")
    if isinstance(certificate, Certificate):
        # As a file would hold it: lists, no tuples.
        return documents.verify(json.loads(json.dumps(certificate.to_json())), limits)
    if isinstance(certificate, Mapping):
        return documents.verify(dict(certificate), limits)
    if isinstance(certificate, str | PathLike):
        return documents.verify_file(Path(certificate), limits)
    raise InputError(
        "certificate must be a path, a Certificate or the JSON value of one, not "
        f"{short_repr(certificate)}"
    )
