"""The node that is asked, with an app that has a machine, a secret, an address and a release."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.conftest import node, sleeper
from tests.clients.flyctl_app import App
from tests.clients.wire import Wire, wire_to
from tests.e2e.running_node import RunningNode
from tests.flyfront.asked import DEFINITION, NAME

__all__ = ["node", "sleeper"]


@pytest.fixture(scope="module")
def wire(node: RunningNode) -> Wire:
    return wire_to(node)


@pytest.fixture(scope="module")
def machine(wire: Wire, sleeper: dict[str, Any]) -> Iterator[str]:
    """The id of the one machine of an app that has something of everything."""
    app = App(wire, NAME, sleeper)
    services = [{"protocol": "tcp", "internal_port": 8080, "ports": [{"port": 443, "handlers": ["tls", "http"]}]}]
    made = app.run(services=services)
    wire.ask("POST", f"{app.path}/secrets", {"values": {"TOKEN": "x"}})
    wire.ask("POST", f"{app.path}/ip_assignments", {"type": "private_v6"})
    body = {"app_name": NAME, "image": "hawker/hello", "strategy": "ROLLING", "definition": DEFINITION}
    release = wire.ask("POST", "/api/v1/releases", body, status=201)["release"]
    wire.ask("PATCH", f"/api/v1/releases/{release['id']}", {"status": "complete"})
    yield made["id"]
    app.close()
