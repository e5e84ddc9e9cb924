"""Every query and mutation of the schema, in words of our own."""

from importlib import resources
from typing import Any

import graphql
import pytest

from tests.clients.wire import Wire
from tests.flyfront.asked import NAME, ask, errors_of

SCHEMA = graphql.build_schema(resources.files("hawker.flyfront").joinpath("schema.graphql").read_text())
REFUSED = {
    "latestImageDetails": "Unknown repository",
    "latestImageTag": "images of Fly's own are not known here",
    "createOrganization": "an organization begins with its first app",
    "deleteLimitedAccessToken": "a token is ended by its text or id",
    "addWireGuardPeer": "WireGuard peers are not served",
    "removeWireGuardPeer": "WireGuard peers are not served",
    "validateWireGuardPeers": "WireGuard peers are not served",
    "issueCertificate": "WireGuard peers are not served",
    "wireGuardPeer": "WireGuard peers are not served",
}
"""What is in the schema because clients ask it, and answered with an error that they can show."""


def selection(kind: graphql.GraphQLOutputType, depth: int) -> str:
    """Every field of a type that can be asked without arguments, and without what is refused."""
    named = graphql.get_named_type(kind)
    if not isinstance(named, graphql.GraphQLObjectType | graphql.GraphQLInterfaceType):
        return ""
    asked = ["__typename"]
    for name, field in named.fields.items():
        needs = [arg for arg in field.args.values() if graphql.is_required_argument(arg)]
        leaf = graphql.is_leaf_type(graphql.get_named_type(field.type))
        if not needs and name not in REFUSED and (leaf or depth > 0):
            asked.append(f"{name} {selection(field.type, depth - 1)}")
    return "{ " + " ".join(asked) + " }"


GIVEN = {
    "organization": '(slug: "traps")',
    "app": f'(name: "{NAME}")',
    "appNameAvailable": f'(name: "{NAME}")',
    "canPerformBluegreenDeployment": f'(name: "{NAME}")',
    "latestImageDetails": '(image: "flyio/postgres:14")',
    "latestImageTag": '(repository: "flyio/postgres")',
    "machine": '(machineId: "MACHINE")',
    "volume": '(id: "vol_none")',
}
QUERIES = list(SCHEMA.query_type.fields.items()) if SCHEMA.query_type else []


@pytest.mark.parametrize(("name", "field"), QUERIES, ids=[name for name, _ in QUERIES])
def test_a_query_is_answered_with_every_field_or_refused_in_words(
    wire: Wire, machine: str, name: str, field: graphql.GraphQLField
) -> None:
    given = GIVEN.get(name, "").replace("MACHINE", machine)
    query = f"query {{ {name}{given} {selection(field.type, 3)} }}"
    if name == "volume":
        assert errors_of(wire, query) == ["volume 'vol_none' not found"]
    elif name in REFUSED:
        assert all(REFUSED[name] in message for message in errors_of(wire, query))
    else:
        assert ask(wire, query)[name] is not None


@pytest.mark.parametrize("name", sorted(REFUSED.keys() & (SCHEMA.mutation_type.fields if SCHEMA.mutation_type else {})))
def test_a_mutation_that_is_not_served_is_an_error_and_never_null(wire: Wire, name: str) -> None:
    """A client that gets null goes on as if it had an answer."""
    assert SCHEMA.mutation_type is not None
    field = SCHEMA.mutation_type.fields[name]
    kind = graphql.get_named_type(field.args["input"].type)
    assert isinstance(kind, graphql.GraphQLInputObjectType)
    samples: dict[str, Any] = {"String": "x", "ID": "x"}
    given: dict[str, Any] = {
        key: samples[str(graphql.get_named_type(each.type))]
        for key, each in kind.fields.items()
        if graphql.is_required_input_field(each) and not graphql.is_list_type(graphql.get_nullable_type(each.type))
    }
    given |= {"peerIps": []} if name == "validateWireGuardPeers" else {}
    query = f"mutation ($input: {field.args['input'].type}) {{ {name}(input: $input) {selection(field.type, 1)} }}"
    (message,) = errors_of(wire, query, input=given)
    assert REFUSED[name] in message


def test_a_machine_is_found_without_its_app(wire: Wire, machine: str) -> None:
    query = "query ($id: String!) { machine(machineId: $id) { id state app { name organization { slug } } } }"
    found = ask(wire, query, id=machine)["machine"]
    assert found == {"id": machine, "state": "started", "app": {"name": NAME, "organization": {"slug": "traps"}}}


def test_apps_come_in_pages(wire: Wire, machine: str) -> None:
    arguments = 'type: "container", first: 1, after: $after'
    fields = "nodes { name } pageInfo { hasNextPage endCursor }"
    query = f"query ($after: String) {{ apps({arguments}) {{ {fields} }} }}"
    names, after, more = [], "", True
    while more:
        page = ask(wire, query, after=after)["apps"]
        names += [each["name"] for each in page["nodes"]]
        more, after = page["pageInfo"]["hasNextPage"], page["pageInfo"]["endCursor"]
    assert NAME in names and names == sorted(set(names))
    assert ask(wire, '{ apps(role: "builder") { nodes { name } } }')["apps"]["nodes"] == []


def test_an_app_is_made_and_destroyed_with_its_machines(wire: Wire, sleeper: dict[str, Any]) -> None:
    make = "mutation ($i: CreateAppInput!) { createApp(input: $i) { app { name organization { slug } } } }"
    body = {"organizationId": "traps", "name": "front-made", "machines": True}
    assert ask(wire, make, i=body)["createApp"]["app"]["organization"]["slug"] == "traps"
    (taken,) = errors_of(wire, make, i=body)
    assert "Name has already been taken" in taken
    wire.ask("POST", "/v1/apps/front-made/machines", {"config": sleeper})
    gone = ask(wire, 'mutation { deleteApp(appId: "front-made") { organization { slug } } }')
    assert gone["deleteApp"]["organization"]["slug"] == "traps"
    assert ask(wire, '{ appNameAvailable(name: "front-made") }')["appNameAvailable"] is True


def test_a_token_to_deploy_one_app_reaches_no_other(wire: Wire, machine: str) -> None:
    make = (
        "mutation ($i: CreateLimitedAccessTokenInput!)"
        " { createLimitedAccessToken(input: $i) { limitedAccessToken { token tokenHeader } } }"
    )
    body = {"name": "ci", "organizationId": "traps", "profile": "deploy", "profileParams": {"app_id": NAME}}
    token = ask(wire, make, i=body)["createLimitedAccessToken"]["limitedAccessToken"]["tokenHeader"]
    wire.ask("POST", "/v1/apps", {"app_name": "front-other", "org_slug": "traps"}, status=201)
    narrow = Wire(wire.host, wire.port, token)
    assert ask(narrow, "{ viewer { __typename } }")["viewer"] == {"__typename": "Macaroon"}
    assert ask(narrow, f'{{ app(name: "{NAME}") {{ secrets {{ name }} }} }}')["app"]["secrets"] == [{"name": "TOKEN"}]
    assert errors_of(narrow, '{ app(name: "front-other") { id } }')
    assert errors_of(narrow, 'mutation { deleteApp(appId: "front-other") { organization { slug } } }')
    body = {"app_name": "front-other", "image": "x"}
    narrow.ask("POST", "/api/v1/releases", body, status=403)
    wire.ask("DELETE", "/v1/apps/front-other", status=202)
    refused = narrow.ask("POST", "/graphql", {"query": make, "variables": {"i": body}})["errors"]
    assert refused
