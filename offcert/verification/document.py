"""Verification: everything in a certificate that can be computed again is computed again.

Whatever a document answers, it is read and written again, which gives every derived field its right
value; the checker of its question examines the answer and establishes the proved bounds with code
that no solver uses; and the rest is protected by a digest of the whole document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, overload

from offcert.core.documents import naming, read_json
from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.proofs.any_certificate import AnyCertificate
from offcert.proofs.questions import question_of
from offcert.verification.findings import Verification as Verification
from offcert.verification.findings import VerificationOutcome as VerificationOutcome
from offcert.verification.findings import examined
from offcert.verification.limits import UNLIMITED, Allowance, BeyondLimitsError, Limits

C = TypeVar("C", bound=AnyCertificate[Any])


@overload
def verify(certificate: C, limits: Limits = UNLIMITED) -> Verification[C]: ...


@overload
def verify(
    certificate: str | PathLike[str] | Mapping[str, Any], limits: Limits = UNLIMITED
) -> Verification[Any]: ...


def verify(certificate: Any, limits: Limits = UNLIMITED) -> Verification[Any]:
    """Compute everything that a certificate claims again, as far as that is possible.

    This takes no solver and no code of the search: schedules are simulated event by event, and
    bounds recomputed from what the certificate holds, in exact arithmetic.

    Parameters
    ----------
    certificate : str, path, mapping, or certificate
        A file, a certificate of whatever question, or the JSON value of one.
    limits : Limits
        Seconds and memory that it may take; by default any.

    Returns
    -------
    Verification
        Its `valid`, `faults` (all of them), and the evidence for each bound.

    Raises
    ------
    InputError
        If the file cannot be read, or what it holds is no certificate: a field is missing, unknown
        or of the wrong kind.
    BeyondLimitsError
        If the file is larger than the limits allow.

    Examples
    --------
    >>> import offcert
    >>> problem = offcert.Library().load("cnn-8-0-m10")
    >>> certificate = offcert.certify(problem, time_limit=10, target_gap=0.01)
    >>> certificate.write("certificate.json")
    >>> checked = offcert.verify("certificate.json")
    >>> checked.valid, checked.faults
    (True, [])
    """
    if not isinstance(limits, Limits):
        raise InputError(f"limits must be Limits, not {short_repr(limits)}")
    if isinstance(certificate, str | PathLike):
        return verify_file(Path(certificate), limits)
    if isinstance(certificate, Mapping):
        return verify_within(dict(certificate), limits.begin())
    if isinstance(certificate, AnyCertificate):
        # As a file would hold it: lists, no tuples.
        return verify_within(json.loads(json.dumps(certificate.to_json())), limits.begin())
    raise InputError(
        "certificate must be a path, a Certificate or the JSON value of one, not "
        f"{short_repr(certificate)}"
    )


def verify_file(path: str | Path, limits: Limits = UNLIMITED) -> Verification[Any]:
    """Verify the certificate in a file, whatever it is about.

    Raises as `verify` does.
    """
    allowance = limits.begin()
    document = read_within(path, limits)
    with naming(path):
        return verify_within(document, allowance)


def read_within(path: str | Path, limits: Limits) -> Any:
    """Return the JSON value in a file that is no larger than the limits allow.

    Raises `BeyondLimitsError` if it is larger.
    """
    try:
        size = Path(path).stat().st_size
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if size > limits.document:
        raise BeyondLimitsError(
            f"{path} has {size} bytes, but only {limits.document:g} may be read; it is not verified"
        )
    return read_json(path)


def verify_within(document: Any, allowance: Allowance) -> Verification[Any]:
    """Verify a certificate given as a JSON value, within what limits have left."""
    question = question_of(document)
    certificate = question.certificate.load().from_json(document)
    check = question.checker.load()
    return examined(certificate, question, document, check, allowance)
