"""What is compiled outside the clock."""

import pytest

from offcert.certify.warm import warm_heads
from offcert.verify.heads import check as heads_check


def test_what_judges_heads_and_tails_is_compiled_with_their_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called = []
    honest = heads_check.floors

    def noting(*arguments: object) -> object:
        called.append(arguments)
        return honest(*arguments)

    monkeypatch.setattr(heads_check, "floors", noting)
    warm_heads.__wrapped__()
    # One call for each side.
    assert len(called) == 2
