"""One GraphQL operation from text to answer: parsed, bounded, validated by the schema beside this file, executed. The
engine is imported at the first operation: it takes a tenth of a second, and most nodes are never asked.

Whoever holds a token may send any text, and the engine takes whatever is valid: it compares all selections of a field
with each other, and makes an answer of a million fields if lists in lists lead to it. So the text is bounded before it
is validated, and the answer while it is made.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from importlib import resources
from inspect import isawaitable
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
from hawker.value_object import ValueObject

MAX_CHARACTERS, MAX_TOKENS = 65_536, 4000
MAX_DEPTH, MAX_FIELDS = 12, 500
MAX_ALIKE, MAX_SPREADS = 16, 16
"""Selections that are one field in the answer, and fragments that are spread: validation compares each with each."""

MAX_VALUES = 10_000
"""In the variables, those in lists and objects counted."""


def oversize(query: str, variables: dict[str, Any]) -> str:
    """What is wrong with a request before its text is read; empty when nothing is."""
    if len(query) > MAX_CHARACTERS:
        return f"the operation has more than {MAX_CHARACTERS} characters"
    return "" if _few_values(variables) else f"the variables have more than {MAX_VALUES} values"


def _few_values(variables: dict[str, Any]) -> bool:
    count, waiting = 0, list[Any]([variables])
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict | list):
            count += len(each)
            if count > MAX_VALUES:
                return False
            waiting += each.values() if isinstance(each, dict) else each
    return True


def out_of_bounds(document: DocumentNode) -> str:
    """Empty when it is within them. A fragment counts wherever it is spread, and once if it is nowhere."""
    operations = [each for each in document.definitions if isinstance(each, OperationDefinitionNode)]
    if len(operations) != 1:
        return "send one operation"
    fragments = {each.name.value: each for each in document.definitions if isinstance(each, FragmentDefinitionNode)}
    if (
        sum(isinstance(each, FragmentSpreadNode) for part in document.definitions for each in _below(part))
        > MAX_SPREADS
    ):
        return f"the operation spreads more than {MAX_SPREADS} fragments"
    measure = _Measure(fragments)
    try:
        fields = measure.of(operations[0].selection_set)
        for name in fragments.keys() - measure.known.keys():
            fields = fields + measure.fragment(name)
    except _Exceeded as error:
        return str(error)
    if fields.total() > MAX_FIELDS:
        return _WIDE
    for path, count in fields.most_common(1):
        if count > MAX_ALIKE:
            return f"the operation asks for {'.'.join(path):.80} more than {MAX_ALIKE} times"
    return ""


def _below(part: object) -> Iterator[object]:
    """All that is selected in it as it is written, at any depth."""
    found = [part]
    while found:
        selection_set = getattr(found.pop(), "selection_set", None)
        found += selection_set.selections if selection_set else ()
        yield from selection_set.selections if selection_set else ()


_WIDE = f"the operation asks for more than {MAX_FIELDS} fields"
_DEEP = f"the operation is deeper than {MAX_DEPTH} fields"

_Path = tuple[str, ...]
_Info = graphql.GraphQLResolveInfo[Any]


class _Exceeded(Exception):
    """Counting ends here: what it says is the answer."""


class _Measure:
    """How often each field is selected, by its path in the answer. Each fragment is measured once; one that contains
    itself is too deep."""

    def __init__(self, fragments: Mapping[str, FragmentDefinitionNode]) -> None:
        self._fragments = fragments
        self.known: dict[str, Counter[_Path]] = {}
        self._under_way = set[str]()

    def of(self, selected: SelectionSetNode | None) -> Counter[_Path]:
        """Raises `_Exceeded`, as all below."""
        fields = Counter[_Path]()
        for each in selected.selections if selected else ():
            fields.update(self._one(each))
            if fields.total() > MAX_FIELDS:
                raise _Exceeded(_WIDE)
        return fields

    def fragment(self, name: str) -> Counter[_Path]:
        if name in self._under_way:
            raise _Exceeded(_DEEP)
        if name not in self._fragments:
            return Counter()  # validation says so
        if name not in self.known:
            self._under_way.add(name)
            self.known[name] = self.of(self._fragments[name].selection_set)
            self._under_way.remove(name)
        return self.known[name]

    def _one(self, selection: object) -> Counter[_Path]:
        match selection:
            case FieldNode():
                name = (selection.alias or selection.name).value
                below = self.of(selection.selection_set)
                if any(len(path) >= MAX_DEPTH for path in below):
                    raise _Exceeded(_DEEP)
                return Counter({(name,): 1} | {(name, *path): count for path, count in below.items()})
            case InlineFragmentNode():
                return self.of(selection.selection_set)
            case FragmentSpreadNode():
                return self.fragment(selection.name.value)
        raise AssertionError(f"no selection: {selection!r}")


class AnswerCost:
    """The engine's middleware, for one operation: a list is answered if `cost` bears all that is asked of its items.
    Lists are what an answer grows by, those of introspection too."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost
        self._asked: dict[int, int] = {}

    def resolve(self, resolver: Callable[..., Any], source: Any, info: _Info, **given: Any) -> Any:
        value = resolver(source, info, **given)
        if not graphql.is_list_type(graphql.get_nullable_type(info.return_type)):
            return value
        return self._awaited(value, info) if isawaitable(value) else self._within(value, info)

    async def _awaited(self, value: Awaitable[Any], info: _Info) -> Any:
        return self._within(await value, info)

    def _within(self, items: Sequence[Any] | None, info: _Info) -> Any:
        """Raises `Unprocessable`."""
        field = info.field_nodes[0]
        if id(field) not in self._asked:
            fields = _Measure(info.fragments)
            self._asked[id(field)] = sum(fields.of(each.selection_set).total() for each in info.field_nodes)
        self._cost.spend(len(items or ()) * self._asked[id(field)])
        return items


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
