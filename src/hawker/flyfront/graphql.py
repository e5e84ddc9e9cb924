"""One GraphQL operation from text to answer: parsed, bounded, validated by the schema beside this file, executed.

The engine is imported at the first operation: it takes a tenth of a second, and most nodes are never asked.
"""

import logging
from collections.abc import Callable
from datetime import datetime
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import graphql
from graphql.language import DocumentNode, OperationDefinitionNode

from hawker.api.contract.flyctl import GraphqlRequest
from hawker.errors import HawkerError
from hawker.fair.threads import Pool, in_thread
from hawker.flyfront.asking import Cost
from hawker.flyfront.bounds import MAX_TOKENS, AnswerCost, out_of_bounds, oversize

_SHORT = 4096  # characters of an operation that is remembered

_log = logging.getLogger("hawker.flyfront")
_RULES = tuple(rule for rule in graphql.specified_rules if rule is not graphql.NoUnusedVariablesRule)
"""Clients send variables that the operation does not declare or use."""


@cache
def schema() -> graphql.GraphQLSchema:
    made = graphql.build_schema(resources.files("hawker.flyfront").joinpath("schema.graphql").read_text())
    scalars: dict[str, Callable[[Any], Any]] = {"BigInt": str, "ISO8601DateTime": _instant}
    for name, serialize in scalars.items():
        kind = made.type_map[name]
        assert isinstance(kind, graphql.GraphQLScalarType)
        kind.coerce_output_value = serialize  # how the engine takes one for a schema from text
    return made


def _instant(value: Any) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"an instant is wanted, not {value!r:.80}")
    return value.isoformat().replace("+00:00", "Z")


async def answer(request: GraphqlRequest, root: object, cost: Cost) -> dict[str, Any]:
    """What goes to the client: `data`, `errors`, or both. Errors of the family are told with their text; of others no
    more than that there was one, which is logged. What is answered of lists is counted in `cost`."""
    variables = request.variables or {}
    if wrong := oversize(request.query, variables):
        return _refused(wrong)
    read = _read_once if len(request.query) <= _SHORT else _read
    document = await in_thread(Pool.QUERIES, read, request.query)
    if isinstance(document, tuple):
        return _refused(*document)
    done = graphql.execute(
        schema(),
        document,
        root_value=root,
        variable_values=variables,
        operation_name=request.operation_name or None,
        middleware=graphql.MiddlewareManager(AnswerCost(cost)),
        hide_suggestions=True,
    )
    result = done if isinstance(done, graphql.ExecutionResult) else await done
    told: dict[str, Any] = {"data": result.data}
    if result.errors:
        told["errors"] = [_told(error) for error in result.errors]
    return told


def _refused(*messages: str) -> dict[str, Any]:
    return {"data": None, "errors": [{"message": message} for message in messages]}


def _read(query: str) -> DocumentNode | tuple[str, ...]:
    """The operation, valid and within bounds, or what is wrong with it. In a thread: it takes a tenth of a second at
    the most."""
    try:
        document = graphql.parse(query, max_tokens=MAX_TOKENS, no_location=True)
        wrong = out_of_bounds(document)
        return (wrong,) if wrong else (tuple(_invalid(document)) or document)
    except (graphql.GraphQLSyntaxError, RecursionError) as error:
        return (str(getattr(error, "message", "the operation is nested too deeply")),)


_read_once = lru_cache(maxsize=64)(_read)
"""Clients send the same few operations, and reading one costs more than answering it."""


def _invalid(document: DocumentNode) -> list[str]:
    """Of a field that the schema lacks the log has a line: it may be a newer client's."""
    found = graphql.validate(schema(), document, _RULES, max_errors=8)
    messages = [error.message for error in found]
    unknown = [message for message in messages if message.startswith("Cannot query field")]
    if unknown:
        _log.warning("unknown field", extra={"operation": _name_of(document), "field": unknown[0][:200]})
    return messages


def _name_of(document: DocumentNode) -> str:
    operation = next(each for each in document.definitions if isinstance(each, OperationDefinitionNode))
    return operation.name.value[:80] if operation.name else ""


def _told(error: graphql.GraphQLError) -> dict[str, Any]:
    cause = error.original_error
    message = error.message
    if cause is not None and not isinstance(cause, (HawkerError, graphql.GraphQLError)):
        _log.error("operation failed", exc_info=cause)
        message = "the node failed at this: see its log"
    return {"message": message, "path": error.path} if error.path else {"message": message}
