"""A disk that is full during a search costs nothing but the copy that could not be made."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from offcert.certification.ladder import certify
from offcert.core.errors import InputError
from offcert.instances.library import default_library
from offcert.proofs.certificate import Certificate
from offcert.verification.document import verify_file

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("error", [FULL, InputError("out.json cannot be written: no space")])
def test_what_cannot_be_kept_is_said_once_and_tried_again(error: Exception) -> None:
    tried: list[Certificate] = []

    def keep(certificate: Certificate) -> None:
        tried.append(certificate)
        raise error

    with pytest.warns(UserWarning, match="could not be kept") as said:
        certificate = certify(default_library().load("cnn-12-1-m10"), time_limit=5, keep=keep)
    assert len([one for one in said if "could not be kept" in str(one.message)]) == 1
    assert len(tried) > 2
    assert certificate.result.objective is not None
    assert certificate.result.lower_bound > 0


def test_once_there_is_space_again_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at every second attempt; what was written before that stays whole."""
    path = tmp_path / "out.json"
    honest: Callable[[Path, Path], Path] = Path.replace
    tries: list[bool] = []

    def replace(temporary: Path, target: Path) -> Path:
        tries.append(len(tries) % 2 == 1)
        if not tries[-1]:
            raise FULL
        return honest(temporary, target)

    monkeypatch.setattr(Path, "replace", replace)
    problem = default_library().load("cnn-12-1-m10")
    with pytest.warns(UserWarning, match="could not be kept.*No space left"):
        certify(problem, time_limit=5, keep=lambda known: known.write(path))
    assert tries.count(True) >= 1
    assert verify_file(path).valid
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]
