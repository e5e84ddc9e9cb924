"""What the catalog's tests share: the databases that a test leaves open are closed after it."""

from collections.abc import Iterator

import apsw
import pytest


@pytest.fixture(autouse=True)
def _databases_are_closed() -> Iterator[None]:
    """A storage and its connection hold each other where the collector cannot see it: a process of tests would end
    with a thousand files open."""
    before = apsw.connections()
    yield
    for connection in apsw.connections():
        if connection not in before:
            connection.close()
