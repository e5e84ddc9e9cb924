"""One GraphQL operation from text to answer: parsed, bounded, validated by the schema beside this file, executed.

The engine is imported at the first operation: it takes a tenth of a second, and most nodes are never asked.
"""

import logging
from collections.abc import Callable, Iterable
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
from hawker.value_object import ValueObject

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


async def answer(
    request: GraphqlRequest, root: object, cost: Cost, unknown: Callable[[str], None] = lambda kind: None
) -> dict[str, Any]:
    """What goes to the client: `data`, `errors`, or both. Errors of the family are told with their text; of others no
    more than that there was one, which is logged. What is answered of lists is counted in `cost`; `unknown` hears the
    kind of each name that the schema lacks, `field`, `argument`, `type`, `input` or `directive`."""
    variables = request.variables or {}
    if wrong := oversize(request.query, variables):
        return _refused(wrong)
    read = _read_once if len(request.query) <= _SHORT else _read
    document = await in_thread(Pool.QUERIES, read, request.query)
    if isinstance(document, _Invalid):
        _tell_unknown(document.name, document.messages, unknown)
        return _refused(*document.messages)
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
        _tell_unknown(_name_of(document), [each.message for each in result.errors if not each.path], unknown)
        told["errors"] = [_told(error) for error in result.errors]
    return told


def _refused(*messages: str) -> dict[str, Any]:
    return {"data": None, "errors": [{"message": message} for message in messages]}


class _Invalid(ValueObject, frozen=True):
    """What is wrong with an operation, and its name if it could be read."""

    messages: tuple[str, ...]
    name: str = ""


def _read(query: str) -> DocumentNode | _Invalid:
    """The operation, valid and within bounds, or what is wrong with it. In a thread: it takes a tenth of a second at
    the most."""
    try:
        document = graphql.parse(query, max_tokens=MAX_TOKENS, no_location=True)
        wrong = out_of_bounds(document)
        if wrong:
            return _Invalid((wrong,))
        found = graphql.validate(schema(), document, _RULES, max_errors=8)
        return _Invalid(tuple(error.message for error in found), _name_of(document)) if found else document
    except (graphql.GraphQLSyntaxError, RecursionError) as error:
        return _Invalid((str(getattr(error, "message", "the operation is nested too deeply")),))


_read_once = lru_cache(maxsize=64)(_read)
"""Clients send the same few operations, and reading one costs more than answering it."""


_UNKNOWN = {
    "Cannot query field ": "field",
    "Unknown argument ": "argument",
    "Unknown type ": "type",
    "Unknown directive ": "directive",
    " not to include unknown field ": "input",
}
"""The engine's words about a name that the schema lacks, and which kind of name."""


def _tell_unknown(operation: str, messages: Iterable[str], unknown: Callable[[str], None]) -> None:
    """One line in the node's log: such a name may be a newer client's. Each time, also for an operation that is
    remembered."""
    found = [(kind, message) for message in messages for words, kind in _UNKNOWN.items() if words in message]
    for kind, _ in found:
        unknown(kind)
    if found:
        # What was sent beside the name stays out: it may be a secret.
        told = found[0][1].partition(", found: ")[0][:200]
        _log.warning("unknown in the schema", extra={"operation": operation, "kind": found[0][0], "text": told})


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
