"""The API's readable page: the OpenAPI document as HTML, whole in one file. Pure; names nothing outside itself."""

from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

from hawker.api.openapi import Document, DocumentOperation, JsonSchema, MediaType


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
        _operation(method, path, operation)
        for path, methods in document.paths.items()
        for method, operation in methods.items()
        if tag in operation.tags
    )
    return f'<h2 id="{escape(tag)}">{escape(tag)}</h2>{operations}'


def _operation(method: str, path: str, operation: DocumentOperation) -> str:
    note = " (older spelling)" if operation.deprecated else ""
    note += " (no token needed)" if operation.security == () else ""
    return (
        f'<details id="{escape(operation.operation_id)}"><summary><span class="method">{method.upper()}</span>'
        f'<span class="path">{escape(path)}</span><span class="soft">{escape(operation.summary + note)}</span>'
        f"</summary><div>{_text(operation.description)}{_parameters(operation)}{_request(operation)}"
        f"{_conversation(operation)}{_responses(operation)}</div></details>"
    )


def _parameters(operation: DocumentOperation) -> str:
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


def _conversation(operation: DocumentOperation) -> str:
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
