"""The OpenAPI document, made from the route table: nothing in it is written by hand. Pure."""

from collections.abc import Iterable
from http import HTTPStatus
from types import NoneType

import msgspec

from hawker.api.codec import answer_type
from hawker.api.contract.body import Failed, Problem
from hawker.api.document import (
    Body,
    Components,
    Conversation,
    Document,
    DocumentOperation,
    Info,
    JsonSchema,
    MediaType,
    Parameter,
    Response,
    SecurityScheme,
    TagInfo,
)
from hawker.api.route import AnyRoute, NoQuery, Socket, Stream, Tag, Upload, declared_errors
from hawker.api.schemas import Schemas
from hawker.errors import HawkerError, LeaseHeld

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
    schemas = Schemas(routes)
    paths: dict[str, dict[str, DocumentOperation]] = {}
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


def _operation(route: AnyRoute, schemas: Schemas) -> DocumentOperation:
    return DocumentOperation(
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


def _parameters(route: AnyRoute, schemas: Schemas) -> Iterable[Parameter]:
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


def _request_body(route: AnyRoute, schemas: Schemas) -> Body | None:
    if isinstance(route, Upload):
        content = {"application/octet-stream": MediaType(schema={})}
        return Body(required=True, content=content, description="raw bytes of any length")
    if route.body is NoneType or isinstance(route, Socket):
        return None
    return Body(required=not route.body_optional, content=_json(schemas.of(route.body)))


def _success(route: AnyRoute, schemas: Schemas) -> dict[str, Response]:
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


def _failures(route: AnyRoute, schemas: Schemas) -> dict[str, Response]:
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


def _conversation(route: AnyRoute, schemas: Schemas) -> Conversation | None:
    if not isinstance(route, Socket):
        return None
    return Conversation(
        opening=schemas.of(route.body), from_client=schemas.of(route.up), from_node=schemas.of(route.response)
    )


def _json(schema: JsonSchema) -> dict[str, MediaType]:
    return {"application/json": MediaType(schema=schema)}
