"""The OpenAPI document, made from the route table, so that nothing in it is written by hand; and the same as a readable
page: HTML, whole in one file, which names nothing outside itself. Pure.
"""

import inspect
from collections.abc import Iterable, Iterator
from html import escape
from http import HTTPStatus
from importlib.resources import files
from types import NoneType
from typing import Any, TypeAlias, get_args

import msgspec

from hawker.api.bounds import WRITTEN
from hawker.api.codec import answer_type
from hawker.api.contract.body import Failed, Problem
from hawker.api.route import AnyRoute, NoQuery, Socket, Stream, Tag, Upload, declared_errors
from hawker.errors import HawkerError, LeaseHeld

JsonSchema: TypeAlias = dict[str, Any]


class DocumentNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Any object of the document; what has its default is left out."""


class Parameter(DocumentNode, frozen=True, kw_only=True):
    name: str
    place: str = msgspec.field(name="in")
    required: bool
    schema: JsonSchema
    description: str = ""


class MediaType(DocumentNode, frozen=True, kw_only=True):
    schema: JsonSchema


class Body(DocumentNode, frozen=True, kw_only=True):
    required: bool
    content: dict[str, MediaType]
    description: str = ""


class Response(DocumentNode, frozen=True, kw_only=True):
    description: str
    content: dict[str, MediaType] = msgspec.field(default_factory=dict)


class Conversation(DocumentNode, frozen=True, kw_only=True):
    """What a WebSocket carries: the client's first message, its later ones, and the node's."""

    opening: JsonSchema
    from_client: JsonSchema
    from_node: JsonSchema


class DocumentOperation(DocumentNode, frozen=True, kw_only=True):
    operation_id: str
    tags: tuple[str, ...]
    summary: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    request_body: Body | None = None
    responses: dict[str, Response]
    security: tuple[dict[str, tuple[str, ...]], ...] | None = None
    deprecated: bool = False
    conversation: Conversation | None = msgspec.field(name="x-websocket", default=None)


class Info(DocumentNode, frozen=True, kw_only=True):
    title: str
    version: str
    description: str


class TagInfo(DocumentNode, frozen=True, kw_only=True):
    name: str


class SecurityScheme(DocumentNode, frozen=True, kw_only=True):
    type: str
    scheme: str
    description: str


class Components(DocumentNode, frozen=True, kw_only=True):
    schemas: dict[str, JsonSchema]
    security_schemes: dict[str, SecurityScheme]


class Document(DocumentNode, frozen=True, kw_only=True):
    openapi: str
    info: Info
    tags: tuple[TagInfo, ...]
    paths: dict[str, dict[str, DocumentOperation]]
    components: Components
    security: tuple[dict[str, tuple[str, ...]], ...]


# The JSON Schemas of the types in a route table, as the document shows them. Pure. Made by msgspec from the types;
# then three things that types do not say: a schema that stands for a whole (`WRITTEN`), a body's own rules between
# its fields (`rules`), and that strict calls refuse what they do not know.

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


# The shape of an OpenAPI 3.1 document, as far as Hawker's has one (spec.openapis.org/oas/v3.1.0).

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


def docs(document: Document) -> str:
    sections = "".join(_section(document, tag.name) for tag in document.tags)
    schemas = "".join(_schema(name, schema) for name, schema in sorted(document.components.schemas.items()))
    links = "".join(f'<a href="#{escape(tag.name)}">{escape(tag.name)}</a>' for tag in document.tags)
    style = files("hawker.api").joinpath("docs.css").read_text()
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(document.info.title)} API</title><style>{style}</style></head><body><main>"
        f'<h1>{escape(document.info.title)} API</h1><p class="soft">{escape(document.info.description)} '
        f'Version {escape(document.info.version)}, also as <a href="/openapi.json">OpenAPI</a>.</p>'
        f'<nav>{links}<a href="#bodies">Bodies</a></nav>{sections}<h2 id="bodies">Bodies</h2>{schemas}'
        "</main></body></html>"
    )


def _section(document: Document, tag: str) -> str:
    operations = "".join(
        _operation_section(method, path, operation)
        for path, methods in document.paths.items()
        for method, operation in methods.items()
        if tag in operation.tags
    )
    return f'<h2 id="{escape(tag)}">{escape(tag)}</h2>{operations}'


def _operation_section(method: str, path: str, operation: DocumentOperation) -> str:
    note = " (older spelling)" if operation.deprecated else ""
    note += " (no token needed)" if operation.security == () else ""
    return (
        f'<details id="{escape(operation.operation_id)}"><summary><span class="method">{method.upper()}</span>'
        f'<span class="path">{escape(path)}</span><span class="soft">{escape(operation.summary + note)}</span>'
        f"</summary><div>{_text(operation.description)}{_parameter_table(operation)}{_request(operation)}"
        f"{_conversation_section(operation)}{_responses(operation)}</div></details>"
    )


def _parameter_table(operation: DocumentOperation) -> str:
    rows = [
        (_code(each.name), each.place, _type(each.schema), _text(_words(each.description, each.schema)))
        for each in operation.parameters
    ]
    return _table("Parameters", ("name", "in", "type", ""), rows)


def _request(operation: DocumentOperation) -> str:
    if operation.request_body is None:
        return ""
    kinds = _contents(operation.request_body.content)
    optional = "" if operation.request_body.required else " (may be left out)"
    return f"<h3>Request</h3><p>{kinds}{optional} {escape(operation.request_body.description)}</p>"


def _conversation_section(operation: DocumentOperation) -> str:
    talk = operation.conversation
    if talk is None:
        return ""
    rows = [
        ("opening", _type(talk.opening)),
        ("from the client", _type(talk.from_client)),
        ("from the node", _type(talk.from_node)),
    ]
    return _table("WebSocket messages", ("message", "type"), rows)


def _responses(operation: DocumentOperation) -> str:
    rows = [
        (status, _contents(response.content), escape(response.description))
        for status, response in operation.responses.items()
    ]
    return _table("Answers", ("status", "body", ""), rows)


def _schema(name: str, schema: JsonSchema) -> str:
    required = schema.get("required", ())
    rows = [
        (_code(field), _type(kind), "always" if field in required else "", _text(_words("", kind)))
        for field, kind in schema.get("properties", {}).items()
    ]
    values = "" if rows else f"<p>{_type(schema)}</p>"
    return (
        f'<details id="body-{escape(name)}"><summary>{_code(name)}</summary><div>'
        f"{_text(schema.get('description', ''))}{values}{_table('', ('field', 'type', '', ''), rows)}</div></details>"
    )


def _type(schema: JsonSchema) -> str:
    """A JSON Schema in a few words of HTML."""
    match schema:
        case {"$ref": str(reference)}:
            name = escape(reference.rpartition("/")[2])
            return f'<a href="#body-{name}">{name}</a>'
        case {"anyOf": list(options)}:
            return " or ".join(_type(option) for option in options if option != {"type": "null"})
        case {"enum": list(values)}:
            return ", ".join(_code(value) for value in values if value is not None)
        case {"type": "array"}:
            return f"list of {_type(schema.get('items', {}))}"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"map of strings to {_type(values)}"
        case {"format": str(form)}:
            return escape(form)
        case {"contentEncoding": str(encoding)}:
            return escape(encoding)
        case {"type": str(name)}:
            return escape(name)
        case _:
            return "bytes" if not schema else "any"


def _words(description: str, schema: JsonSchema) -> str:
    default = schema.get("default")
    said = description or schema.get("description", "")
    return f"{said} (default {default})".strip() if default else said


def _contents(content: dict[str, MediaType]) -> str:
    return ", ".join(
        f"{_type(media.schema)} <span class='soft'>{escape(kind)}</span>" for kind, media in content.items()
    )


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    if not lines:
        return ""
    heading = f"<h3>{escape(title)}</h3>" if title else ""
    return f"{heading}<table><tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>{lines}</table>"


def _text(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def _code(value: Any) -> str:
    return f"<code>{escape(str(value))}</code>"
