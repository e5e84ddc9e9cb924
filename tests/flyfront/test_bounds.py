"""What one operation may ask: of its text, of its variables, of its answer."""

from typing import Any

import graphql
import pytest

from hawker.api.contract.flyctl import GraphqlRequest
from hawker.flyfront.asking import MAX_COST, Cost
from hawker.flyfront.graphql import MAX_CHARACTERS, MAX_FIELDS, MAX_VALUES, answer, out_of_bounds, oversize

VIEWER, SPREADS = "the operation asks for viewer more than 16 times", "the operation spreads more than 16 fragments"
WIDE, DEEP = f"the operation asks for more than {MAX_FIELDS} fields", "the operation is deeper than 12 fields"
ENOUGH = f"the question leads to more than {MAX_COST} things: ask for less at once"


def of(query: str) -> str:
    return out_of_bounds(graphql.parse(query))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("{ " + "viewer { email } " * 16 + "}", ""),
        ("{ " + "viewer { email } " * 17 + "}", VIEWER),
        ("{ " + " ".join(f"a{n}: viewer {{ email }}" for n in range(250)) + " }", ""),
        ("{ " + " ".join(f"a{n}: viewer {{ email }}" for n in range(251)) + " }", WIDE),
        ("{ " + "...f " * 16 + "viewer } fragment f on Queries { viewer { email } }", VIEWER),
        ("{ " + "...f " * 17 + "} fragment f on Queries { viewer { email } }", SPREADS),
        ("{ viewer { email } } fragment f on Queries { " + "viewer " * 17 + "}", VIEWER),
        ("{ viewer { email } } fragment f on Organization { " + "id " * 501 + "}", WIDE),
        ("{ viewer { email } } fragment a on Queries { ...b } fragment b on Queries { ...a }", DEEP),
        ("{ " + "a { " * 11 + "a" + " }" * 12, ""),
        ("{ " + "a { " * 12 + "a" + " }" * 13, DEEP),
        ("{ ...nobody }", ""),
    ],
    ids=[
        "alike", "too alike", "aliases", "many aliases", "spread", "spread often", "never spread", "never spread, wide",
        "circle", "deep", "too deep", "a fragment that is not there",
    ],
)  # fmt: skip
def test_an_operation_is_measured_before_it_is_validated(query: str, said: str) -> None:
    assert of(query) == said


def test_a_long_text_and_many_variables_are_refused_before_they_are_read() -> None:
    assert "characters" in oversize(" " * (MAX_CHARACTERS + 1), {})
    assert oversize(" " * MAX_CHARACTERS, {"input": {"ips": [""] * (MAX_VALUES - 2)}}) == ""
    assert "values" in oversize("{}", {"input": {"ips": [""] * MAX_VALUES}})
    assert "values" in oversize("{}", {"input": [[""] * 1000] * 11})


class _App:
    name = "shop"

    async def secrets(self, info: object) -> list[dict[str, Any]]:
        return [{"name": "A"}] * 1000


class _Root:
    def apps(self, info: object, first: int) -> dict[str, Any]:
        return {"nodes": [_App()] * first}


async def _asked(query: str, **variables: Any) -> dict[str, Any]:
    return await answer(GraphqlRequest(query=query, variables=variables), _Root(), Cost())


@pytest.mark.anyio
async def test_a_list_is_answered_if_all_that_is_asked_of_its_items_is_within_the_bound() -> None:
    names = " ".join(f"a{n}: name" for n in range(20))
    within = await _asked(f"{{ apps(first: {MAX_COST // 20}) {{ nodes {{ {names} }} }} }}")
    assert "errors" not in within and len(within["data"]["apps"]["nodes"]) == MAX_COST // 20
    beyond = await _asked(f"{{ apps(first: {MAX_COST // 20 + 1}) {{ nodes {{ {names} }} }} }}")
    assert [each["message"] for each in beyond["errors"]] == [ENOUGH] and not beyond["data"]["apps"]["nodes"]


@pytest.mark.anyio
async def test_lists_in_lists_and_introspection_count_into_the_same_bound() -> None:
    found = await _asked("{ apps(first: 31) { nodes { secrets { name } } } }")
    assert {each["message"] for each in found["errors"]} == {ENOUGH}
    types = " ".join(f"a{n}: types {{ fields {{ name }} }}" for n in range(160))
    introspected = await _asked(f"{{ __schema {{ {types} }} }}")
    assert {each["message"] for each in introspected["errors"]} == {ENOUGH}


@pytest.mark.anyio
async def test_a_variable_of_another_type_is_the_callers_fault_and_not_the_nodes() -> None:
    query = (
        "mutation ($input: ValidateWireGuardPeersInput!) { validateWireGuardPeers(input: $input) { invalidPeerIps } }"
    )
    found = await _asked(query, input={"peerIps": [1] * 9000})
    assert "cannot represent a non string value" in found["errors"][0]["message"] and len(found["errors"]) <= 51
