"""The JSON Schemas of the types in a route table, as the document shows them. Pure.

Made by msgspec from the types; then three things that types do not say: a schema that stands for a whole (`WRITTEN`),
a body's own rules between its fields (`rules`), and that strict calls refuse what they do not know.
"""

import inspect
from collections.abc import Iterable, Iterator
from types import NoneType
from typing import Any, get_args

import msgspec

from hawker.api.bounds import WRITTEN
from hawker.api.codec import answer_type
from hawker.api.contract.body import Failed, Problem
from hawker.api.document import JsonSchema
from hawker.api.route import AnyRoute, Socket

PREFIX = "#/components/schemas/"
_REFERENCE = f"{PREFIX}{{name}}"
_NULL = {"type": "null"}


class Schemas:
    """By type; `all` are those that have a name."""

    def __init__(self, routes: tuple[AnyRoute, ...]) -> None:
        self._types: list[Any] = list(_types(routes))
        found, components = msgspec.json.schema_components(self._types, ref_template=_REFERENCE)
        self._found = [_as_written(schema) for schema in found]
        strict = reached(components, [self.of(route.body) for route in routes if route.strict])
        rules = {kind.__name__: kind.rules for kind in self._types if hasattr(kind, "rules")}
        self.all: dict[str, JsonSchema] = {
            name: {**_as_written(schema), **rules.get(name, {}), **_closed(schema, name in strict)}
            for name, schema in components.items()
        }

    def of(self, kind: Any) -> JsonSchema:
        schema: JsonSchema = self._found[self._types.index(kind)]
        return schema

    def fields(self, kind: type[msgspec.Struct]) -> tuple[dict[str, JsonSchema], frozenset[str]]:
        """A query's fields, and which of them are required. Its own schema stays out of the document, and null, which a
        query cannot say, too."""
        _, components = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
        own: JsonSchema = components[kind.__name__]
        written = {name: _as_written(_without_null(schema)) for name, schema in own["properties"].items()}
        return written, frozenset(own.get("required", ()))


def _types(routes: tuple[AnyRoute, ...]) -> Iterator[Any]:
    yield from (Problem, Failed)
    for route in routes:
        if route.body is not NoneType:
            yield route.body
        if route.response is not NoneType:
            yield answer_type(route)
        if isinstance(route, Socket):
            yield route.up
        yield from _enums(route.query)


def _enums(kind: type[msgspec.Struct]) -> Iterable[Any]:
    """What a query's fields refer to has to be in the document, the query itself does not."""
    for field in msgspec.structs.fields(kind):
        yield from (arg for arg in get_args(field.type) if inspect.isclass(arg) and hasattr(arg, "__members__"))


def _as_written(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_as_written(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if WRITTEN in schema:
        return {name: schema[name] for name in ("default", "description") if name in schema} | schema[WRITTEN]
    found = {name: _as_written(each) for name, each in schema.items()}
    return _in_place(found) if any(WRITTEN in option for option in schema.get("anyOf", ())) else found


def _in_place(schema: JsonSchema) -> JsonSchema:
    """Options of options are options."""
    options = [inner for option in schema["anyOf"] for inner in option.get("anyOf", [option])]
    return {**schema, "anyOf": options}


def _without_null(schema: JsonSchema) -> JsonSchema:
    kept = {name: each for name, each in schema.items() if (name, each) != ("default", None)}
    options = [option for option in kept.get("anyOf", ()) if option != _NULL]
    if len(options) == 1:
        return {**{name: each for name, each in kept.items() if name != "anyOf"}, **options[0]}
    return {**kept, "anyOf": options} if options else kept


def reached(components: dict[str, JsonSchema], roots: Iterable[JsonSchema]) -> frozenset[str]:
    """The names of all that these schemas refer to, and so on."""
    found: set[str] = set()
    left = [name for root in roots for name in _references(root)]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _references(components[name])
    return frozenset(found)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield str(schema["$ref"]).removeprefix(PREFIX)
        for each in schema.values():
            yield from _references(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each)


def _closed(schema: JsonSchema, strict: bool) -> JsonSchema:
    return {"additionalProperties": False} if strict and "properties" in schema else {}
