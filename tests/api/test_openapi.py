import re
from functools import cache
from html.parser import HTMLParser
from types import NoneType
from typing import Annotated, Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest

from hawker.api.bounds import Seconds, written
from hawker.api.codec import encode_json
from hawker.api.contract.machine import CREATE_MACHINE
from hawker.api.contract.node import HEALTH
from hawker.api.openapi import Schemas, docs, openapi
from hawker.api.route import AnyRoute, NoParams, NoQuery, Page, Socket, Stream, Tag, Unary, declared_errors
from hawker.api.routes import ROUTES
from tests.api.samples import sample


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    number: int = 1


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    inner: Inner | None = None
    word: Annotated[str, written({"enum": ["a", "b"]})] | None = None


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    timeout: Seconds | None = None
    name: str | None = None


def _schemas(strict: bool) -> Schemas:
    route = Unary(
        name="ask",
        method="POST",
        path="/v1/ask",
        params=NoParams,
        query=NoQuery,
        body=Asked,
        response=NoneType,
        tag=Tag.NODE,
        summary="Ask",
        strict=strict,
    )
    return Schemas((route,))


def test_a_body_of_a_strict_call_is_closed_down_to_its_parts() -> None:
    assert all(_schemas(True).all[name]["additionalProperties"] is False for name in ("Asked", "Inner"))
    assert all("additionalProperties" not in _schemas(False).all[name] for name in ("Asked", "Inner", "Problem"))


def test_a_written_schema_stands_for_the_whole() -> None:
    word = _schemas(False).all["Asked"]["properties"]["word"]
    assert word == {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}], "default": None}


def test_a_query_knows_no_null() -> None:
    fields, required = _schemas(False).fields(Wanted)
    assert fields["name"] == {"type": "string"} and not required
    assert [option.get("type") for option in fields["timeout"]["anyOf"]] == ["number", "string", None]


every_route = pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)


@cache
def document() -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(encode_json(openapi(ROUTES, "1.2.3")))
    return found


def _operation(route: AnyRoute) -> dict[str, Any]:
    found: dict[str, Any] = document()["paths"][route.path][route.method.lower()]
    return found


def _validate(value: Any, schema: dict[str, Any]) -> None:
    """Against a schema of the document, with what it refers to."""
    whole = {**schema, "components": document()["components"]}
    jsonschema.Draft202012Validator(whole).validate(msgspec.json.decode(encode_json(value)))


@every_route
def test_every_route_is_documented_with_its_errors(route: AnyRoute) -> None:
    operation = _operation(route)
    assert (operation["operationId"], operation["tags"]) == (route.name, [route.tag.value])
    for kind in declared_errors(route):
        assert kind.__name__ in operation["responses"][str(kind.status)]["description"]
    assert ("security" in operation) == (not route.auth)


@every_route
def test_every_parameter_is_documented(route: AnyRoute) -> None:
    names = {(each["in"], each["name"].removesuffix(".{key}")) for each in _operation(route).get("parameters", [])}
    assert {("path", name) for name in route.params.__struct_fields__} <= names
    assert {("query", name) for name in route.query.__struct_fields__} <= names


@every_route
def test_bodies_sent_and_answered_fit_their_schema(route: AnyRoute) -> None:
    operation = _operation(route)
    if "requestBody" in operation and "application/json" in operation["requestBody"]["content"]:
        _validate(sample(route.body), operation["requestBody"]["content"]["application/json"]["schema"])
    content = {} if isinstance(route, Socket) else operation["responses"][str(route.status)].get("content", {})
    for kind, media in content.items():
        assert (kind == "application/x-ndjson") == isinstance(route, Stream)
        answer = sample(route.response)
        _validate(answer.items if isinstance(answer, Page) else answer, media["schema"])


def test_a_wrong_value_does_not_fit() -> None:
    schema = _operation(CREATE_MACHINE)["requestBody"]["content"]["application/json"]["schema"]
    with pytest.raises(jsonschema.ValidationError):
        _validate({"config": {"guest": {"cpus": "1"}}}, schema)


def test_every_reference_leads_somewhere() -> None:
    schemas = document()["components"]["schemas"]
    text = encode_json(document()).decode()
    names = {piece.split('"')[0] for piece in text.split("#/components/schemas/")[1:]}
    assert names and names <= set(schemas)


def test_the_alias_of_a_call_is_marked_as_the_older_spelling() -> None:
    methods = document()["paths"]["/v1/apps/{app_name}/machines/{machine_id}/metadata"]
    assert methods["put"]["deprecated"] and "deprecated" not in methods["patch"]
    assert methods["put"]["operationId"] == "update_metadata_put"


def test_health_needs_no_token_and_creating_takes_a_key() -> None:
    assert _operation(HEALTH)["security"] == []
    assert "idempotency-key" in {each["name"] for each in _operation(CREATE_MACHINE)["parameters"]}


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for methods in document()["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names) == len(ROUTES) + sum(len(route.aliases) for route in ROUTES)
    assert document()["openapi"] == "3.1.0" and document()["info"]["version"] == "1.2.3"


_VOID = {"meta", "link", "br"}


@cache
def page() -> str:
    return docs(openapi(ROUTES, "1.2.3"))


class Sound(HTMLParser):
    """Fails at a tag that is closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        given = dict(attrs)
        self.ids += [value for name, value in given.items() if name == "id" and value]
        self.links += [value for name, value in given.items() if name == "href" and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _parsed() -> Sound:
    parser = Sound()
    parser.feed(page())
    parser.close()
    return parser


def test_every_tag_is_closed_and_every_link_leads_somewhere() -> None:
    parsed = _parsed()
    assert not parsed.open and len(set(parsed.ids)) == len(parsed.ids)
    inside = {link.removeprefix("#") for link in parsed.links if link.startswith("#")}
    assert inside <= set(parsed.ids)


def test_the_page_asks_no_other_host_for_anything() -> None:
    assert {link for link in _parsed().links if not link.startswith("#")} == {"/openapi.json"}
    assert not re.search(r"https?://|<script|src=|@import|url\(", page())


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_call_is_on_the_page(route: AnyRoute) -> None:
    assert f'id="{route.name}"' in page() and route.path in page()


def test_a_dark_and_a_light_page_exist() -> None:
    assert "prefers-color-scheme: dark" in page()


def test_text_is_escaped() -> None:
    assert "<html>" not in page().removeprefix("<!doctype html>") and "List an app&#x27;s machines" in page()
