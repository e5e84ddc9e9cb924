"""The documents that VMMs publish of their APIs, Swagger 2 and OpenAPI 3, where somebody has put them at hand.

They are no part of the project: `HAWKER_VMM_DOCUMENTS` names their directory, else it is where the
contracts are that the project is given.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.vmm.document import Document, Schema

VARIABLE = "HAWKER_VMM_DOCUMENTS"
_BESIDE = Path(__file__).parents[3] / "shared" / "api" / "vmm"
_KEPT = ("type", "enum", "minimum", "maximum", "required")
_METHODS = ("get", "put", "patch")


def find(name: str) -> Path | None:
    """The document "firecracker.yaml" or "cloud-hypervisor.yaml"."""
    place = Path(os.environ.get(VARIABLE, _BESIDE)) / name
    return place if place.is_file() else None


def read(path: Path) -> Document:
    whole = yaml.safe_load(path.read_text())
    info = whole["info"]
    return Document(title=info["title"], version=str(info["version"]), operations=dict(_operations(whole)))


def _operations(whole: dict[str, Any]) -> Iterator[tuple[str, Schema | None]]:
    root = "/api/v1" if "openapi" in whole else ""
    for path, calls in whole["paths"].items():
        for method in _METHODS:
            if method in calls:
                schema = _body(calls[method])
                yield f"{method.upper()} {root}{path}", None if schema is None else _plain(whole, schema)


def _body(call: dict[str, Any]) -> Schema | None:
    for parameter in call.get("parameters", ()):
        if parameter["in"] == "body":
            return dict(parameter["schema"])
    if "requestBody" in call:
        return dict(call["requestBody"]["content"]["application/json"]["schema"])
    return None


def _plain(whole: dict[str, Any], schema: Schema) -> Schema:
    """Without references and words; an object has no fields but those that are named, unless it says otherwise."""
    if "$ref" in schema:
        target: Any = whole
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return _plain(whole, target)
    plain = {key: schema[key] for key in _KEPT if key in schema}
    if "items" in schema:
        plain["items"] = _plain(whole, schema["items"])
    if "properties" in schema:
        plain["properties"] = {name: _plain(whole, each) for name, each in schema["properties"].items()}
        plain["additionalProperties"] = schema.get("additionalProperties", False)
    return plain
