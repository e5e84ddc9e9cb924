"""What all tests share: the event loop, the `root` mark, ids that no other run has, and the watch for strays."""

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from hawker.chaos.traces import Trace, host, left
from hawker.clock import SystemClock
from hawker.ids import NodeId, new_node_id
from tests.waiting import wait_for

hypothesis.settings.register_profile(
    "hawker",
    deadline=None,  # on a busy machine an example may take any time
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("hawker")

Mark = Callable[[object], None]

_GONE_WITHIN_S = 5.0


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root"):
                item.add_marker(pytest.mark.skip(reason="needs root: it makes mounts, namespaces or cgroups"))


@pytest.fixture
def node_id() -> NodeId:
    """A node of its own, so that runs beside each other on one host do not meet."""
    return new_node_id(SystemClock())


@pytest.fixture
def nothing_stray(tmp_path: Path) -> Iterator[Mark]:
    """Fails the test if anything that bears its directory, or a mark that it gives (a node's id), outlives it."""
    before = host()
    marks: list[object] = [tmp_path]
    yield marks.append
    strays = _still_there(before, *marks)
    if strays:
        pytest.fail(f"left on the host: {strays}", pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def _host_as_before() -> Iterator[None]:
    """The whole run leaves the host as it was. Other runs may share a developer's host, so only CI insists."""
    before = host()
    yield
    strays = _still_there(before)
    if strays and os.environ.get("CI"):
        pytest.fail(f"left on the host by this run: {strays}", pytrace=False)
    if strays:
        warnings.warn(f"on the host since this run began: {strays}", stacklevel=1)


def _still_there(before: frozenset[Trace], *marks: object) -> list[str]:
    """What is left once what is on its way out has had time to go."""
    try:
        wait_for(lambda: not left(before, *marks), _GONE_WITHIN_S)
    except TimeoutError:
        return [str(trace) for trace in left(before, *marks)]
    return []
