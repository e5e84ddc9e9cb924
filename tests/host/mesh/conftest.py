"""A network for tests of devices alone: of all nodes in one namespace the first has the mesh, and other tests of a run
have fleets in the host's own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.host import netns
from tests.node_ids import own_node_id


@pytest.fixture
def own_network(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """The thread that runs the test is in it, and so is whatever it begins. For those alone that are root's."""
    if request.node.get_closest_marker("root") is None:
        yield
        return
    own_node_id()  # its range of them is claimed by a name that each network has for itself: in the host's, then
    path = tmp_path / "network"
    netns.create(path, lambda _: None)
    namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with netns._return():
        netns._check(netns._libc.setns(namespace, netns._CLONE_NEWNET))
        os.close(namespace)
        yield
    netns.delete(path)
