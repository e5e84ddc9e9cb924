from types import NoneType
from typing import Annotated

import msgspec

from hawker.api.bounds import Seconds, written
from hawker.api.route import NoParams, NoQuery, Tag, Unary
from hawker.api.schemas import Schemas


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


def test_what_a_strict_call_takes_is_closed_down_to_its_parts() -> None:
    assert all(_schemas(True).all[name]["additionalProperties"] is False for name in ("Asked", "Inner"))
    assert all("additionalProperties" not in _schemas(False).all[name] for name in ("Asked", "Inner", "Problem"))


def test_a_written_schema_stands_for_the_whole() -> None:
    word = _schemas(False).all["Asked"]["properties"]["word"]
    assert word == {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}], "default": None}


def test_a_query_knows_no_null() -> None:
    fields, required = _schemas(False).fields(Wanted)
    assert fields["name"] == {"type": "string"} and not required
    assert [option.get("type") for option in fields["timeout"]["anyOf"]] == ["number", "string", None]
