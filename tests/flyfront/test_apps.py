"""An app as GraphQL asks for it."""

from datetime import datetime
from typing import Any

import pytest

from hawker.api.contract.app import App
from hawker.api.contract.machine import LIST_MACHINES, Machine
from hawker.api.grant import Everything
from hawker.api.handlers import Handlers
from hawker.api.on_behalf import OnBehalf
from hawker.api.route import Call, NoParams, NoQuery, Page
from hawker.flyfront.apps import AppNode
from hawker.flyfront.asking import Asking
from tests.api.samples import sample
from tests.cli.fake_node import machine as machine_of
from tests.clients.wire import Wire
from tests.flyfront.asked import DEFINITION, NAME, ask, errors_of


def test_a_variable_that_is_not_used_is_no_error_and_aliases_hold(wire: Wire, machine: str) -> None:
    fields = "id releases: releasesUnprocessed { nodes { version } }"
    query = f"query ($name: String!) {{ compact: app(name: $name) {{ {fields} }} }}"
    assert ask(wire, query, name=NAME, status="complete") == {
        "compact": {"id": NAME, "releases": {"nodes": [{"version": 1}]}}
    }


def test_a_missing_app_is_an_error_with_the_text_that_clients_look_for(wire: Wire) -> None:
    (message,) = errors_of(wire, '{ app(name: "nobody") { id } }')
    assert message.startswith("Could not find App")


def test_an_image_is_resolved_to_the_digest_that_a_machine_is_pinned_to(wire: Wire, machine: str) -> None:
    """Sizes are text: clients read them as big numbers."""
    query = f'{{ app(name: "{NAME}") {{ image(ref: "hawker/hello") {{ digest compressedSizeFull }} }} }}'
    found = ask(wire, query)["app"]["image"]
    assert found["digest"].startswith("sha256:") and found["compressedSizeFull"].isdecimal()
    missing = f'{{ app(name: "{NAME}") {{ image(ref: "layout:/nowhere") {{ digest }} }} }}'
    assert errors_of(wire, missing)


def test_the_current_release_has_its_definition_as_it_was_sent(wire: Wire, machine: str) -> None:
    query = (
        f'{{ app(name: "{NAME}") {{ currentReleaseUnprocessed {{ configDefinition version imageRef createdAt }} }} }}'
    )
    release = ask(wire, query)["app"]["currentReleaseUnprocessed"]
    assert (release["configDefinition"], release["version"], release["imageRef"]) == (DEFINITION, 1, "hawker/hello")
    assert datetime.fromisoformat(release["createdAt"])


@pytest.mark.anyio
async def test_the_image_of_an_app_is_that_of_a_machine_whose_host_answers() -> None:
    there = machine_of("3d8f0000000001")
    away = machine_of("3d8f0000000002", host_status="unreachable")

    async def shown(*machines: Machine) -> dict[str, Any] | None:
        async def listed(call: Call[Any, Any, Any]) -> Page[Machine]:
            return Page(machines)

        handlers = Handlers()
        handlers.on(LIST_MACHINES, listed)
        outer = Call(params=NoParams(), query=NoQuery(), body=None, grant=Everything(), request_id="01R")
        return await AppNode(Asking(OnBehalf(handlers), outer), sample(App)).imageDetails(None)

    found = await shown(away, there)
    assert found is not None and (found["repository"], found["tag"]) == ("web", "3")
    assert await shown(away) is None
