"""An app as GraphQL asks for it."""

from datetime import datetime

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
