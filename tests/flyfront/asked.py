"""An app that has something of everything, and questions about it over GraphQL."""

from typing import Any

from tests.clients.wire import Wire

NAME = "front"
DEFINITION = {"app": NAME, "primary_region": "ams", "env": {"A": "1"}}


def ask(wire: Wire, query: str, **variables: Any) -> Any:
    """The data of an answer without errors."""
    answer = wire.ask("POST", "/graphql", {"query": query, "variables": variables})
    assert "errors" not in answer, answer["errors"]
    return answer["data"]


def errors_of(wire: Wire, query: str, **variables: Any) -> list[str]:
    answer = wire.ask("POST", "/graphql", {"query": query, "variables": variables})
    return [error["message"] for error in answer["errors"]]
