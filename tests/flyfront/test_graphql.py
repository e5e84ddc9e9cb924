"""Operations out of bounds, and callers without a token."""

import pytest

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
        ("{ " + " ".join(f"a{n}: viewer {{ email }}" for n in range(251)) + " }", "more than 500 fields"),
        ("{ " + "viewer { email } " * 1400 + "}", "Document contains more than 4000 tokens"),
        ("{ ...a } fragment a on Queries { ...a }", "deeper than 12"),
        (
            "{ ...f9 } fragment f0 on Queries { viewer { email } } "
            + " ".join(f"fragment f{n} on Queries {{ ...f{n - 1} ...f{n - 1} }}" for n in range(1, 10)),
            "more than 500 fields",
        ),
        ("{ " + "{ " * 2000, "Syntax Error"),
    ],
    ids=["cut", "empty", "two", "two named", "unknown", "deep", "wide", "long", "circle", "bomb", "braces"],
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
