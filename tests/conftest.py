"""Makes the shared helpers beside this file importable from every test."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that two workers end together.

    The README's first command compiles most of what there is to compile, which is kept. The tests
    beside it begin with those that need none of it, so that they need not compile it too.
    """
    items.sort(key=lambda item: ("test_readme" not in item.nodeid, "runtime/" not in item.nodeid))
