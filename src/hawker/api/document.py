"""The shape of an OpenAPI 3.1 document, as far as Hawker's has one (spec.openapis.org/oas/v3.1.0)."""

from typing import Any, TypeAlias

import msgspec

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
