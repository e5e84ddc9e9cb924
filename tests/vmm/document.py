"""The description of an HTTP API: which calls there are, and what their bodies may be. Requests are held against it.

Stricter than what a server does: a field that the description does not have is refused, whatever a server makes of it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema  # type: ignore[import-untyped]

Schema = dict[str, Any]


class Violation(Exception):
    """A request that the description does not allow. `known` is whether there is such a call at all."""

    def __init__(self, text: str, *, known: bool) -> None:
        super().__init__(text)
        self.known = known


@dataclass(frozen=True, slots=True)
class Document:
    """`operations` maps "PUT /drives/{drive_id}" to the schema of the body, None for a call without one."""

    title: str
    version: str
    operations: Mapping[str, Schema | None]

    def check(self, method: str, path: str, body: object | None) -> str:
        """The operation that a request is of. Raises `Violation`."""
        operation = self._operation(method, path)
        schema = self.operations[operation]
        if schema is None:
            if body is not None:
                raise Violation(f"{operation} takes no body", known=True)
            return operation
        if body is None:
            raise Violation(f"{operation} needs a body", known=True)
        error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(body))
        if error is not None:
            raise Violation(f"{operation}: {error.json_path}: {error.message}", known=True)
        return operation

    def _operation(self, method: str, path: str) -> str:
        for operation in self.operations:
            verb, _, template = operation.partition(" ")
            if verb == method and re.fullmatch(re.sub(r"\{\w+\}", r"[^/]+", template), path):
                return operation
        raise Violation(f"there is no {method} {path}", known=False)


def record(required: Mapping[str, Schema] | None = None, **optional: Schema) -> Schema:
    """An object with these fields and no others."""
    must = dict(required or {})
    return {
        "type": "object",
        "properties": {**must, **optional},
        "required": sorted(must),
        "additionalProperties": False,
    }


def integer(minimum: int | None = None, maximum: int | None = None) -> Schema:
    bounds = {"minimum": minimum, "maximum": maximum}
    return {"type": "integer", **{name: bound for name, bound in bounds.items() if bound is not None}}


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item}


TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "integer"}
