"""`offcert.verify`: verifies what holds a certificate, whatever it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, overload

from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.proofs.certificate import Certificate
from offcert.proofs.devices_certificate import DEVICES_CERTIFICATE_FORMAT, DevicesCertificate
from offcert.proofs.placement.certificate import PLACEMENT_FORMAT, PlacementCertificate
from offcert.proofs.selection_certificate import SELECTION_FORMAT, SelectionCertificate
from offcert.proofs.step_certificate import STEP_CERTIFICATE_FORMAT, StepCertificate
from offcert.verify import document as documents
from offcert.verify.devices.document import DevicesVerification, verify_devices
from offcert.verify.document import Verification, read_within
from offcert.verify.limits import UNLIMITED, Allowance, Limits
from offcert.verify.placement.document import PlacementVerification, verify_placement
from offcert.verify.selection.document import SelectionVerification, verify_selection
from offcert.verify.steps.check import StepVerification, verify_step

Verified = (
    Verification
    | PlacementVerification
    | StepVerification
    | DevicesVerification
    | SelectionVerification
)


@overload
def verify(certificate: Certificate, limits: Limits = UNLIMITED) -> Verification: ...


@overload
def verify(
    certificate: PlacementCertificate, limits: Limits = UNLIMITED
) -> PlacementVerification: ...


@overload
def verify(certificate: StepCertificate, limits: Limits = UNLIMITED) -> StepVerification: ...


@overload
def verify(certificate: DevicesCertificate, limits: Limits = UNLIMITED) -> DevicesVerification: ...


@overload
def verify(
    certificate: SelectionCertificate, limits: Limits = UNLIMITED
) -> SelectionVerification: ...


@overload
def verify(
    certificate: str | PathLike[str] | Mapping[str, Any], limits: Limits = UNLIMITED
) -> Verified: ...


def verify(
    certificate: (
        str
        | PathLike[str]
        | Certificate
        | PlacementCertificate
        | StepCertificate
        | DevicesCertificate
        | SelectionCertificate
        | Mapping[str, Any]
    ),
    limits: Limits = UNLIMITED,
) -> Verified:
    """Compute everything that a certificate claims again, as far as that is possible.

    Parameters
    ----------
    certificate : str, path, mapping, or certificate
        A file, a certificate of a schedule, of addresses, of a step, of a step on several devices
        or of a selection, or the JSON value of one.
    limits : Limits
        Seconds and memory that it may take; by default any.

    Returns
    -------
    Verified
        What fits the certificate: its `valid`, `faults`, and the evidence for each bound.

    Raises
    ------
    InputError
        If the file cannot be read, or what it holds is no certificate.
    BeyondLimitsError
        If the file is larger than the limits allow.
    """
    if not isinstance(limits, Limits):
        raise InputError(f"limits must be Limits, not {short_repr(limits)}")
    if isinstance(
        certificate,
        Certificate
        | PlacementCertificate
        | StepCertificate
        | DevicesCertificate
        | SelectionCertificate,
    ):
        # As a file would hold it: lists, no tuples.
        return _verified(json.loads(json.dumps(certificate.to_json())), limits.begin())
    if isinstance(certificate, Mapping):
        return _verified(dict(certificate), limits.begin())
    if isinstance(certificate, str | PathLike):
        return verify_any_file(Path(certificate), limits)
    raise InputError(
        "certificate must be a path, a Certificate or the JSON value of one, not "
        f"{short_repr(certificate)}"
    )


def verify_any_file(path: str | Path, limits: Limits = UNLIMITED) -> Verified:
    """Verify the certificate in a file, whatever it is about.

    Raises
    ------
    InputError
        If the file cannot be read or is no certificate.
    BeyondLimitsError
        If the file is larger than the limits allow, so that it was not even read.
    """
    allowance = limits.begin()
    document = read_within(path, limits)
    try:
        return _verified(document, allowance)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _verified(document: Any, allowance: Allowance) -> Verified:
    if isinstance(document, dict) and document.get("format") == PLACEMENT_FORMAT:
        return verify_placement(document, allowance=allowance)
    if isinstance(document, dict) and document.get("format") == DEVICES_CERTIFICATE_FORMAT:
        return verify_devices(document, allowance=allowance)
    if isinstance(document, dict) and document.get("format") == STEP_CERTIFICATE_FORMAT:
        return verify_step(document, allowance=allowance)
    if isinstance(document, dict) and document.get("format") == SELECTION_FORMAT:
        return verify_selection(document)
    return documents.verify(document, allowance=allowance)
