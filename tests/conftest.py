"""Makes the shared helpers beside this file importable from every test."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that two workers end together."""
    items.sort(key=lambda item: "test_readme" not in item.nodeid)
