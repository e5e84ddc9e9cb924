"""How much one GraphQL operation may ask: of its text before it is validated, of its answer while it is made.

Whoever holds a token may send any text, and the engine takes whatever is valid: it compares all selections of a field
with each other, and makes an answer of a million fields if lists in lists lead to it. So each of these has a bound.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
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

from hawker.flyfront.asking import Cost

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
