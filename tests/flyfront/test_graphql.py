"""Operations out of bounds, and callers without a token."""

from typing import Any

import pytest

from hawker.api.contract.flyctl import GraphqlRequest
from hawker.flyfront import graphql, shapes
from hawker.flyfront.asking import MAX_COST, Cost
from tests.clients.wire import Wire
from tests.flyfront.asked import errors_of

NESTED = 'app(name: "front") { organization { remoteBuilderApp { '


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("{", "Syntax Error"),
        ("", "Syntax Error"),
        ("{ viewer { email } } { viewer { email } }", "send one operation"),
        ("query a { viewer { email } } query b { viewer { email } }", "send one operation"),
        ('{ app(name: "x") { nosuch } }', "Cannot query field 'nosuch' on type 'App'"),
        (
            "{ " + 'app(name: "front") { organization { remoteBuilderApp { ' * 6 + "id" + " } } }" * 6 + " }",
            "deeper than 12",
        ),
        ("{ " + " ".join(f"a{n}" for n in range(501)) + " }", "more than 500 fields"),
        ("{ " + "viewer { email } " * 1400 + "}", "Document contains more than 4000 tokens"),
        ("{ ...a } fragment a on Queries { ...a }", "deeper than 12"),
        (
            "{ ...f7 } fragment f0 on Queries { viewer { a: email b: email c: email d: email } } "
            + " ".join(f"fragment f{n} on Queries {{ ...f{n - 1} ...f{n - 1} }}" for n in range(1, 8)),
            "more than 500 fields",
        ),
        ("{ " + "{ " * 2000, "Syntax Error"),
        ("{ " + 'a: app(name: "x") { id } ' * 17 + "}", "asks for a more than 16 times"),
        ("{ " + "viewer { email } " * 17 + "}", "asks for viewer more than 16 times"),
        ("{ " + "viewer { email email email } " * 6 + "}", "asks for viewer.email more than 16 times"),
        ("{ " + "...f " * 16 + "viewer { email } } fragment f on Queries { viewer { email } }", "asks for viewer more"),
        ("{ " + "...f " * 17 + "} fragment f on Queries { viewer { email } }", "more than 16 fragments"),
        (
            "{ ...f0 } "
            + " ".join(f"fragment f{n} on Queries {{ ...f{n + 1} }}" for n in range(480))
            + " fragment f480 on Queries { viewer { email } }",
            "more than 16 fragments",
        ),
        ("{ " + "viewer " + "{ viewer " * 300 + "}" * 301, "nested too deeply"),
    ],
    ids=[
        "cut",
        "empty",
        "two",
        "two named",
        "unknown",
        "deep",
        "wide",
        "long",
        "circle",
        "bomb",
        "braces",
        "pairs",
        "pairs of fields",
        "pairs below",
        "pairs in fragments",
        "spreads",
        "chain",
        "nested",
    ],
)
def test_an_operation_out_of_bounds_is_refused_in_words(wire: Wire, query: str, text: str) -> None:
    assert text in errors_of(wire, query)[0]


def test_a_caller_without_a_token_is_told_so_in_errors(wire: Wire) -> None:
    answer = wire.send(
        "POST", "/graphql", b'{"query": "{ __schema { types { name } } }"}', {"Authorization": "Bearer no"}
    )
    assert answer.status == 401 and "no valid token" in answer.json["errors"][0]["message"]
    problem = wire.send("GET", "/v1/apps", headers={"Authorization": "Bearer no"}).json
    assert "errors" not in problem


@pytest.mark.parametrize(
    ("query", "variables", "kind"),
    [
        ("{ viewer { nosuch } }", {}, "field"),
        ('{ app(name: "x", nosuch: 1) { id } }', {}, "argument"),
        ("{ viewer { ... on NoSuch { id } } }", {}, "type"),
        ("{ viewer @nosuch { email } }", {}, "directive"),
        (
            "mutation ($input: UnsetSecretsInput!) { unsetSecrets(input: $input) { release { id } } }",
            {"input": {"appId": "x", "keys": [], "nosuch": 1}},
            "input",
        ),
    ],
    ids=["field", "argument", "type", "directive", "input"],
)
def test_each_name_that_the_schema_lacks_is_counted_by_kind(
    wire: Wire, query: str, variables: dict[str, Any], kind: str
) -> None:
    """Also when the operation is remembered as a wrong one."""
    before = unknown_names(wire, kind)
    for _ in range(2):
        assert "nosuch" in errors_of(wire, query, **variables)[0].lower()
    assert unknown_names(wire, kind) == before + 2


def unknown_names(wire: Wire, kind: str) -> int:
    text = wire.send("GET", "/metrics").data.decode()
    begin = f'hawker_graphql_unknown_names_total{{kind="{kind}"}} '
    return next((int(float(line.removeprefix(begin))) for line in text.splitlines() if line.startswith(begin)), 0)


class Wide:
    """Organizations that have organizations, as lists of lists are."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked = 0
        self.slug = "x"

    def organizations(self, info: object, admin: bool | None = None) -> object:
        return shapes.nodes([self] * self.count)

    def id(self, info: object) -> str:
        self.asked += 1
        return "x"


@pytest.mark.anyio
async def test_the_fields_an_operation_leads_to_are_bounded_however_short_it_is() -> None:
    query = GraphqlRequest(query="{ organizations { nodes { id } } }")
    few, many = Wide(MAX_COST // 2), Wide(2 * MAX_COST)
    told = await graphql.answer(query, few, Cost())
    assert "errors" not in told and len(told["data"]["organizations"]["nodes"]) == few.count
    told = await graphql.answer(query, many, Cost())
    assert "leads to more than" in told["errors"][0]["message"]
    assert many.asked <= MAX_COST
