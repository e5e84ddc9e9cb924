"""What the clients drive: a node as a user starts it, and the machine that its driver can run from nothing."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.program import INSTALLED, SOURCES, Program, needs, program
from tests.e2e.images import toolbox, write_layout
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO

IS_ROOT = os.geteuid() == 0


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """One for all clients: each has apps of its own."""
    with running_node(tmp_path_factory.mktemp("node"), "--ephemeral") as node:
        yield node


@pytest.fixture(scope="session")
def sleeper() -> dict[str, Any]:
    """A machine that goes on until it is stopped. Processes of the host cannot run what is in an image."""
    return {"image": HELLO} if IS_ROOT else {"image": HELLO, "init": {"exec": ["/bin/sh", "-c", "exec sleep 600"]}}


@pytest.fixture(scope="session")
def toolbox_image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with a shell, as a layout on the node's host; its reference."""
    return write_layout(tmp_path_factory.mktemp("layout"), toolbox(tmp_path_factory.mktemp("toolbox") / "root"))


@pytest.fixture(scope="module")
def fly_admin(node: RunningNode) -> Iterator[Program]:
    needs(INSTALLED / "fly_admin/node_modules", "fly-admin")
    modules = {"NODE_PATH": str(INSTALLED / "fly_admin/node_modules")}
    with program(["node", str(SOURCES / "fly_admin/drive.cjs")], modules | where(node)) as client:
        yield client


@pytest.fixture(scope="module")
def fly_python_sdk(node: RunningNode) -> Iterator[Program]:
    python = INSTALLED / "fly_python_sdk/bin/python"
    needs(python, "fly-python-sdk")
    with program([str(python), str(SOURCES / "fly_python_sdk/drive.py")], where(node)) as client:
        yield client


def where(node: RunningNode) -> dict[str, str]:
    return {"HAWKER_URL": node.url, "HAWKER_TOKEN": node.token}
