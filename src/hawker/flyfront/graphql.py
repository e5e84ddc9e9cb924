"""One GraphQL operation from text to answer: parsed, bounded, validated by the schema beside this file, executed.

The engine is imported at the first operation: it takes a tenth of a second, and most nodes are never asked.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import graphql
from graphql.language import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    InlineFragmentNode,
    OperationDefinitionNode,
    SelectionSetNode,
)

from hawker.api.contract.flyctl import GraphqlRequest
from hawker.errors import HawkerError
from hawker.fair.threads import Pool, in_thread
from hawker.flyfront.asking import Cost

MAX_DEPTH, MAX_FIELDS, MAX_TOKENS = 12, 500, 4000
MAX_ALIKE, MAX_SPREADS = 16, 16
"""Fields that are one in the answer, and fragments that are spread: validation compares each with each."""
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
    more than that there was one, which is logged. Each field that is answered is counted in `cost`."""
    read = _read_once if len(request.query) <= _SHORT else _read
    document = await in_thread(Pool.QUERIES, read, request.query)
    if isinstance(document, tuple):
        return {"data": None, "errors": [{"message": message} for message in document]}
    done = graphql.execute(
        schema(),
        document,
        root_value=root,
        variable_values=request.variables or {},
        operation_name=request.operation_name or None,
        field_resolver=_counted(cost),
        hide_suggestions=True,
    )
    result = done if isinstance(done, graphql.ExecutionResult) else await done
    told: dict[str, Any] = {"data": result.data}
    if result.errors:
        told["errors"] = [_told(error) for error in result.errors]
    return told


def _counted(cost: Cost) -> Callable[..., Any]:
    def resolve(source: Any, info: graphql.GraphQLResolveInfo[Any], **arguments: Any) -> Any:
        cost.spend(1)
        return graphql.default_field_resolver(source, info, **arguments)

    return resolve


def _read(query: str) -> DocumentNode | tuple[str, ...]:
    """The operation, valid and within bounds, or what is wrong with it. In a thread: it takes a tenth of a second at
    the most."""
    try:
        document = graphql.parse(query, max_tokens=MAX_TOKENS, no_location=True)
        return tuple(_out_of_bounds(document) or _invalid(document)) or document
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
    if cause is not None and not isinstance(cause, HawkerError):
        _log.error("operation failed", exc_info=cause)
        message = "the node failed at this: see its log"
    return {"message": message, "path": error.path} if error.path else {"message": message}


# Bounds, before anything is validated: a fragment counts wherever it is spread.


def _out_of_bounds(document: DocumentNode) -> list[str]:
    operations = [each for each in document.definitions if isinstance(each, OperationDefinitionNode)]
    if len(operations) != 1:
        return ["send one operation"]
    fragments = {each.name.value: each for each in document.definitions if isinstance(each, FragmentDefinitionNode)}
    if (
        sum(isinstance(each, FragmentSpreadNode) for part in document.definitions for each in _below(part))
        > MAX_SPREADS
    ):
        return [f"the operation spreads more than {MAX_SPREADS} fragments"]
    fields, depth = _Measure(fragments).of(operations[0].selection_set)
    if depth > MAX_DEPTH:
        return [f"the operation is deeper than {MAX_DEPTH} fields"]
    if fields > MAX_FIELDS:
        return [f"the operation asks for more than {MAX_FIELDS} fields"]
    alike = Counter(_paths(operations[0], fragments)).most_common(1)
    if alike and alike[0][1] > MAX_ALIKE:
        return [f"the operation asks for {'.'.join(alike[0][0]):.80} more than {MAX_ALIKE} times"]
    return []


def _below(part: object) -> Iterator[object]:
    """All that is selected in it as it is written, at any depth."""
    found = [part]
    while found:
        selection_set = getattr(found.pop(), "selection_set", None)
        found += selection_set.selections if selection_set else ()
        yield from selection_set.selections if selection_set else ()


def _paths(
    part: object, fragments: dict[str, FragmentDefinitionNode], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Where in the answer each field is that is selected in `part`."""
    selection_set = getattr(part, "selection_set", None)
    for each in selection_set.selections if selection_set else ():
        if isinstance(each, FieldNode):
            path = (*above, (each.alias or each.name).value)
            yield path
            yield from _paths(each, fragments, path)
        elif isinstance(each, FragmentSpreadNode):
            yield from _paths(fragments.get(each.name.value), fragments, above)
        else:
            yield from _paths(each, fragments, above)


class _Measure:
    """Fields and depth of what is selected. Each fragment is measured once; one that contains itself is too deep."""

    def __init__(self, fragments: dict[str, FragmentDefinitionNode]) -> None:
        self._fragments = fragments
        self._known: dict[str, tuple[int, int]] = {}

    def of(self, selected: SelectionSetNode | None) -> tuple[int, int]:
        fields, depth = 0, 0
        for each in selected.selections if selected else ():
            below_fields, below_depth = self._one(each)
            fields, depth = fields + below_fields, max(depth, below_depth)
        return fields, depth

    def _one(self, selection: object) -> tuple[int, int]:
        match selection:
            case FieldNode():
                fields, depth = self.of(selection.selection_set)
                return fields + 1, depth + 1
            case InlineFragmentNode():
                return self.of(selection.selection_set)
            case FragmentSpreadNode():
                return self._fragment(selection.name.value)
        raise AssertionError(f"no selection: {selection!r}")

    def _fragment(self, name: str) -> tuple[int, int]:
        if name not in self._fragments:
            return 0, 0  # validation says so
        if name not in self._known:
            self._known[name] = (MAX_FIELDS + 1, MAX_DEPTH + 1)
            self._known[name] = self.of(self._fragments[name].selection_set)
        return self._known[name]
