"""Bodies from bytes: what each kind of bad body is called, and that what is written is read back."""

from types import NoneType
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.api.codec import MAX_DEPTH, MAX_VALUES, AnswerCodec, BodyCodec, encode_json
from hawker.api.contract.exec import TerminalInput, TerminalRequest
from hawker.api.contract.machine import LIST_MACHINES, CreateMachineRequest, Machine, StopRequest
from hawker.api.contract.market import BidsRequest
from hawker.api.route import AnyRoute, Page, Socket
from hawker.api.routes import ROUTES
from hawker.errors import BadRequest, HawkerError, Unprocessable
from tests.api.samples import sample

CREATE: BodyCodec[CreateMachineRequest] = BodyCodec(CreateMachineRequest, strict=True)
STOP: BodyCodec[StopRequest] = BodyCodec(StopRequest, optional=True)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"nope", b"\xff", b'{"config":{}', b"[" * 100_000, b'{"config":"\\ud800"}']
)
def test_a_body_that_is_no_json_is_a_bad_request(data: bytes) -> None:
    with pytest.raises((BadRequest, Unprocessable)) as raised:
        CREATE.decode(data)
    assert data.startswith(b"[") or type(raised.value) is BadRequest


def nested(depth: int, inner: bytes = b"") -> bytes:
    """Half of them lists, half objects, with brackets in texts that do not count."""
    pairs = [(b"[", b"]") if level % 2 else (b'{"]\\"}[":', b"}") for level in range(depth)]
    end = inner or (b"" if depth % 2 == 0 else b"0")
    return b"".join(first for first, _ in pairs) + end + b"".join(last for _, last in reversed(pairs))


def test_a_body_is_as_deep_as_its_lists_and_objects() -> None:
    codec: BodyCodec[Any] = BodyCodec(dict, deepest=MAX_DEPTH)
    for depth in (1, 2, MAX_DEPTH - 1, MAX_DEPTH):
        assert msgspec.json.encode(codec.decode(nested(depth)))
    assert codec.decode(b'{"a":[' + b",".join([b"[{}]"] * 1000) + b"]}")
    for data in (nested(MAX_DEPTH + 1), nested(MAX_DEPTH, b"[]"), nested(2, b"[]," * 99 + nested(MAX_DEPTH))):
        with pytest.raises(BadRequest, match="more than 64 lists and objects in each other"):
            codec.decode(data)
    with pytest.raises(BadRequest, match="JSON"):
        codec.decode(b'{"a":[' + b"[]," * 99)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"[]", "Expected `object`, got `array`"),
        (b'{"config":{},"none":1e99999}', "[...]: number out of range"),
        (b"{}", "Object missing required field `config`"),
        (b'{"config":{"guest":{"cpus":"1"}}}', "config.guest.cpus: expected `int | null`, got `str`"),
        (b'{"config":{"image":7}}', "config.image: expected `str | null`, got `int`"),
        (b'{"config":{"processes":[{},{"cmd":"ls"}]}}', "config.processes[1].cmd: expected `array | null`, got `str`"),
        (b'{"config":{"env":{"A":1}}}', "config.env[...]: expected `str`, got `int`"),
        (b'{"config":{"restart":{"policy":"on-fail"}}}', "config.restart.policy: invalid enum value 'on-fail'"),
        (b'{"config":{"auto_destroy":1}}', "config.auto_destroy: expected `bool | null`, got `int`"),
        (b'{"config":{"bogus":1}}', "config.bogus is not a known field"),
        (b'{"config":{"guest":{"cpu":1}}}', "config.guest.cpu is not a known field"),
        (b'{"config":{"processes":[{},{"x":[]}]}}', "config.processes[1].x is not a known field"),
        (b'{"config":{"checks":{"a":{"x":0}}}}', "config.checks.a.x is not a known field"),
        (b'{"config":{},"skip_lanuch":true}', "skip_lanuch is not a known field"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_by_its_path(data: bytes, complaint: str) -> None:
    with pytest.raises(Unprocessable) as raised:
        CREATE.decode(data)
    assert str(raised.value) == complaint


def test_null_asks_for_nothing_wherever_it_stands() -> None:
    body = CREATE.decode(b'{"config":{"image":"a","guest":null,"invented":null},"region":null,"lease_ttl":null}')
    assert body.config.image == "a" and body.lease_ttl is None


def test_a_tolerant_body_ignores_what_it_does_not_know() -> None:
    assert STOP.decode(b'{"signal":"SIGTERM","invented":1}') == StopRequest(signal="SIGTERM")


def test_an_optional_body_may_be_left_out() -> None:
    assert STOP.decode(b"") == STOP.decode(b"{}") == StopRequest()


def test_no_body_is_wanted_where_there_is_none() -> None:
    codec: BodyCodec[None] = BodyCodec(NoneType)
    assert codec.decode(b"rubbish") is None
    assert codec.encode(None) == b""


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_bodies_and_answers_are_read_back_as_they_were_written(route: AnyRoute) -> None:
    body = sample(route.body)
    codec: BodyCodec[Any] = BodyCodec(route.body, strict=route.strict, optional=route.body_optional)
    assert codec.decode(codec.encode(body)) == body
    if not isinstance(route, Socket):
        answer = sample(route.response)
        answers: AnswerCodec[Any] = AnswerCodec(route)
        data, cursor = answers.encode(answer)
        assert answers.decode(data, {"fly-next-cursor": cursor} if cursor else {}) == answer


def test_a_page_is_a_bare_array_and_its_cursor_goes_beside_it() -> None:
    codec: AnswerCodec[Page[Machine]] = AnswerCodec(LIST_MACHINES)
    assert codec.encode(Page(items=(), next_cursor="c")) == (b"[]", "c")
    assert codec.decode(b"[]", {}) == Page(items=())


def test_an_instant_is_rfc_3339_in_utc() -> None:
    machine: Machine = sample(Machine)
    assert msgspec.json.decode(encode_json(machine))["created_at"] == "2026-01-02T03:04:05.006000Z"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
FIELDS = st.sampled_from([*CreateMachineRequest.__struct_fields__, "image", "guest", "cpus", "env", "checks", "files"])
LIKELY = st.recursive(JSON, lambda inner: st.dictionaries(FIELDS, inner), max_leaves=20)


@given(LIKELY)
def test_any_json_is_a_body_or_a_typed_error(value: Any) -> None:
    data = encode_json({"config": value})
    try:
        CREATE.decode(data)
    except HawkerError as error:
        assert error.status in (400, 422)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_body_or_a_typed_error(data: bytes) -> None:
    try:
        CREATE.decode(data)
    except HawkerError as error:
        assert error.status in (400, 422)


def test_a_config_of_more_values_than_any_machine_has_is_refused_unread() -> None:
    words = b",".join([b'"x"'] * (MAX_VALUES + 2))
    with pytest.raises(Unprocessable, match="more than 20000 values"):
        CREATE.decode(b'{"config":{"image":"i","init":{"exec":[' + words + b"]}}}")


def test_a_text_without_an_end_is_looked_through_once() -> None:
    """Looked at again from each of its quotes it would take hours, in which nobody else is answered."""
    with pytest.raises(BadRequest, match="not JSON"):
        CREATE.decode(b'"' + b'\\"' * 400_000 + b"," * MAX_VALUES + b"\\")


def test_commas_in_texts_are_no_values() -> None:
    text = encode_json({"k": 'a,b\\",c' * MAX_VALUES})
    assert CREATE.decode(b'{"config":{"image":"i","metadata":' + text + b"}}").config.image == "i"


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**400], ids=["above", "below", "far"])
def test_an_integer_that_has_more_than_64_bits_is_named_by_its_path(value: int) -> None:
    for field in (b'"lease_ttl"', b'"min_secrets_version"'):
        with pytest.raises(Unprocessable, match=f"^{field.decode()[1:-1]}: an integer has at most 64 bits"):
            CREATE.decode(b'{"config":{"image":"a"},%s:%d}' % (field, value))
    with pytest.raises(Unprocessable, match=r"^config\.mounts\[0\]\.size_gb: an integer"):
        CREATE.decode(b'{"config":{"image":"a","mounts":[{"size_gb":%d}]}}' % value)


def test_digits_that_are_no_integer_and_integers_of_64_bits_are_taken() -> None:
    data = b'{"config":{"image":"a","env":{"A":"%d"}},"lease_ttl":%d}' % (10**30, 2**63 - 1)
    assert CREATE.decode(data).lease_ttl == 2**63 - 1


@pytest.mark.parametrize("digits", ["1" * 19, '"%s"' % ("1" * 19), "9" * 30], ids=["integer", "text", "wide"])
def test_a_part_that_is_read_later_may_have_any_digits(digits: str) -> None:
    """A digest of a layer has 19 digits in a row now and then, and no bid for its image came from another node."""
    ask = b'{"app":"a","machine":{"config":{"image":"i"},"lease_ttl":%s}}' % digits.encode()
    assert BodyCodec(BidsRequest).decode(b'{"asks":[%s]}' % ask).asks == (msgspec.Raw(ask),)


@pytest.mark.parametrize("rows", [-1, 65536])
def test_a_terminal_has_at_most_65535_lines(rows: int) -> None:
    up: BodyCodec[Any] = BodyCodec(cast(Any, TerminalInput))
    with pytest.raises(Unprocessable, match="rows"):
        BodyCodec(TerminalRequest).decode(b'{"command":["sh"],"rows":%d}' % rows)
    with pytest.raises(Unprocessable, match="rows"):
        up.decode(b'{"type":"resize","rows":%d,"cols":1}' % rows)
