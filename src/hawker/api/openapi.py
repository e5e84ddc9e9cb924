"""The OpenAPI document, made from the route table: nothing in it is written by hand. Pure."""

import inspect
from collections.abc import Iterable
from http import HTTPStatus
from types import NoneType
from typing import Any, get_args

import msgspec

from hawker.api.bodies import Failed, Problem
from hawker.api.codec import answer_type
from hawker.api.document import (
    Body,
    Components,
    Conversation,
    Document,
    Info,
    JsonSchema,
    MediaType,
    Operation,
    Parameter,
    Response,
    SecurityScheme,
    TagInfo,
)
from hawker.api.route import AnyRoute, NoQuery, Socket, Stream, Tag, Upload, declared_errors
from hawker.errors import HawkerError, LeaseHeld

_REFERENCE = "#/components/schemas/{name}"
_NONCE = Parameter(
    name="fly-machine-lease-nonce",
    place="header",
    required=False,
    schema={"type": "string"},
    description="the machine's lease, needed while somebody holds it",
)
_KEY = Parameter(
    name="idempotency-key",
    place="header",
    required=False,
    schema={"type": "string"},
    description="a repeated call with the same key answers with what the first one made",
)


def openapi(routes: Iterable[AnyRoute], version: str) -> Document:
    routes = tuple(routes)
    schemas = _Schemas(routes)
    paths: dict[str, dict[str, Operation]] = {}
    for route in routes:
        operation = _operation(route, schemas)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
        for alias in route.aliases:
            again = f"{route.name}_{alias.method.lower()}"
            other = msgspec.structs.replace(operation, operation_id=again, deprecated=True)
            paths.setdefault(alias.path, {})[alias.method.lower()] = other
    token = SecurityScheme(type="http", scheme="bearer", description="the node's token; FlyV1 is taken as well")
    return Document(
        openapi="3.1.0",
        info=Info(title="Hawker", version=version, description="The Machines API, and the node's own calls."),
        tags=tuple(TagInfo(name=tag.value) for tag in Tag),
        paths=paths,
        components=Components(schemas=schemas.all, security_schemes={"token": token}),
        security=({"token": ()},),
    )


class _Schemas:
    """JSON Schemas of every type in the table, by type."""

    def __init__(self, routes: tuple[AnyRoute, ...]) -> None:
        self._types: list[Any] = list(_types(routes))
        found, self.all = msgspec.json.schema_components(self._types, ref_template=_REFERENCE)
        self._found = list(found)

    def of(self, kind: Any) -> JsonSchema:
        return self._found[self._types.index(kind)]

    def fields(self, kind: type[msgspec.Struct]) -> tuple[dict[str, JsonSchema], frozenset[str]]:
        """A struct's fields, and which of them are required. Its own schema stays out of the document."""
        _, components = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
        own: JsonSchema = components[kind.__name__]
        return own["properties"], frozenset(own.get("required", ()))


def _types(routes: tuple[AnyRoute, ...]) -> Iterable[Any]:
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


def _operation(route: AnyRoute, schemas: _Schemas) -> Operation:
    return Operation(
        operation_id=route.name,
        tags=(route.tag.value,),
        summary=route.summary,
        description="" if route.query is NoQuery else _own_text(route.query),
        parameters=tuple(_parameters(route, schemas)),
        request_body=_request_body(route, schemas),
        responses={**_success(route, schemas), **_failures(route, schemas)},
        security=None if route.auth else (),
        conversation=_conversation(route, schemas),
    )


def _parameters(route: AnyRoute, schemas: _Schemas) -> Iterable[Parameter]:
    for name in route.params.__struct_fields__:
        yield Parameter(name=name, place="path", required=True, schema={"type": "string"})
    fields, required = schemas.fields(route.query)
    for name, schema in fields.items():
        written = f"{name}.{{key}}" if schema.get("type") == "object" else name
        yield Parameter(
            name=written,
            place="query",
            required=name in required,
            schema={"type": "string"} if written != name else schema,
        )
    if LeaseHeld in route.errors:
        yield _NONCE
    if route.keyed:
        yield _KEY


def _request_body(route: AnyRoute, schemas: _Schemas) -> Body | None:
    if isinstance(route, Upload):
        content = {"application/octet-stream": MediaType(schema={})}
        return Body(required=True, content=content, description="raw bytes of any length")
    if route.body is NoneType or isinstance(route, Socket):
        return None
    return Body(required=not route.body_optional, content=_json(schemas.of(route.body)))


def _success(route: AnyRoute, schemas: _Schemas) -> dict[str, Response]:
    if isinstance(route, Socket):
        return {"101": Response(description="The conversation begins.")}
    if route.response is NoneType:
        return {str(route.status): Response(description="Done; no body.")}
    schema = schemas.of(answer_type(route))
    if isinstance(route, Stream):
        lines = {"application/x-ndjson": MediaType(schema={"anyOf": [schema, schemas.of(Failed)]})}
        return {str(route.status): Response(description="One JSON object a line.", content=lines)}
    content = {route.media: MediaType(schema=schema)}
    return {str(route.status): Response(description=HTTPStatus(route.status).phrase, content=content)}


def _failures(route: AnyRoute, schemas: _Schemas) -> dict[str, Response]:
    by_status: dict[int, list[type[HawkerError]]] = {}
    for kind in declared_errors(route):
        by_status.setdefault(kind.status, []).append(kind)
    problem = _json(schemas.of(Problem))
    return {
        str(status): Response(description="; ".join(map(_meaning, kinds)), content=problem)
        for status, kinds in sorted(by_status.items())
    }


def _meaning(kind: type[HawkerError]) -> str:
    """The error's name and the first sentence of what its class says of itself."""
    sentence = _own_text(kind).partition(". ")[0].rstrip(".")
    return f"{kind.__name__}: {sentence}" if sentence else kind.__name__


def _own_text(kind: type) -> str:
    """A class's docstring in one line; not an inherited one."""
    return " ".join((kind.__dict__.get("__doc__") or "").split())


def _conversation(route: AnyRoute, schemas: _Schemas) -> Conversation | None:
    if not isinstance(route, Socket):
        return None
    return Conversation(
        opening=schemas.of(route.body), from_client=schemas.of(route.up), from_node=schemas.of(route.response)
    )


def _json(schema: JsonSchema) -> dict[str, MediaType]:
    return {"application/json": MediaType(schema=schema)}
