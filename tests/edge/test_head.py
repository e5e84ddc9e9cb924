"""Heads of requests and answers: what is understood, and what two servers could read in two ways."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.edge.head import (
    AnswerReader,
    Field,
    Http2RequestReader,
    RequestHead,
    RequestReader,
    bare_line_end,
    parse_http2,
    parse_request,
    parse_response,
)
from hawker.edge.refusal import Code, ProxyError

HOST = b"Host: a\r\n"
Data = TypeVar("Data", bytes, list[Field])


def request(lines: bytes = b"", line: bytes = b"GET / HTTP/1.1") -> bytes:
    return line + b"\r\n" + HOST + lines + b"\r\n"


def test_a_plain_request_is_read() -> None:
    head = parse_request(b"PUT /a?b HTTP/1.1\r\nHost: A.example:8080\r\nContent-Length: 5\r\nAccept: x\r\n\r\n")
    assert (head.method, head.target, head.host, head.length) == (b"PUT", b"/a?b", "a.example", 5)
    assert head.fields == ((b"accept", b"x"),) and head.keep_alive and head.has_body


def test_a_target_in_absolute_form_becomes_that_of_its_host() -> None:
    assert parse_request(request(line=b"GET http://A/x?y HTTP/1.1")).target == b"/x?y"
    assert parse_request(request(line=b"GET https://a HTTP/1.1")).target == b"/"
    assert parse_request(request(line=b"OPTIONS * HTTP/1.1")).target == b"*"


def test_fields_of_the_connection_go_no_further() -> None:
    sent = (
        b"Connection: keep-alive, X-Own\r\nX-Own: 1\r\nKeep-Alive: 5\r\nTE: trailers, x\r\nProxy-Authorization: z\r\n"
    )
    head = parse_request(request(sent + b"Upgrade: h2c\r\nX_under: 1\r\nOther: 2\r\n"))
    assert head.fields == ((b"other", b"2"),) and head.trailers and not head.upgrade


def test_blanks_around_a_value_are_none_of_it() -> None:
    """RFC 9112, 5.1; with them HTTP/2 takes the whole message for malformed."""
    assert parse_request(b"GET / HTTP/1.1\r\nHost: a\r\nX-A:  1 \t2 \t \r\nX-B: \r\n\r\n").fields == (
        (b"x-a", b"1 \t2"),
        (b"x-b", b""),
    )
    assert parse_response(b"HTTP/1.1 200 OK\r\nX-A: 1 \t\r\n\r\n", b"GET").fields == ((b"x-a", b"1"),)


def test_an_upgrade_is_one_when_the_connection_says_so() -> None:
    assert parse_request(request(b"Connection: Upgrade\r\nUpgrade: websocket\r\n")).upgrade == b"websocket"


@pytest.mark.parametrize(
    "data",
    [
        request(line=b"get / HTTP/1.1"),
        request(line=b"GET / HTTP/1.2"),
        request(line=b"GET / HTTP/2.0"),
        request(line=b"GET /"),
        request(line=b"GET  / HTTP/1.1"),
        request(line=b"GET /a b HTTP/1.1"),
        request(line=b"GET /\xc3 HTTP/1.1"),
        request(line=b"GET a HTTP/1.1"),
        request(line=b"GET * HTTP/1.1"),
        request(line=b"GET http://user@a/ HTTP/1.1"),
        request(b"Host: b\r\n"),
        request(b"X : 1\r\n"),
        request(b"X: a\x00b\r\n"),
        request(b": 1\r\n"),
        request(b"Content-Length: +5\r\n"),
        request(b"Content-Length: 5, 5\r\n"),
        request(b"Content-Length: 0x5\r\n"),
        request(b"Content-Length: 99999999999999999999\r\n"),
        request(b"Content-Length: 5\r\nContent-Length: 5\r\n"),
        request(b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        request(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        request(b"Transfer-Encoding: xchunked\r\n"),
        request(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        request(b"Transfer-Encoding: chunked, identity\r\n"),
        request(b"Connection: upgrade\r\nUpgrade: x\r\nContent-Length: 5\r\n"),
        b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
    ],
)
def test_a_head_that_could_be_read_in_two_ways_is_refused(data: bytes) -> None:
    with pytest.raises(ProxyError) as refusal:
        parse_request(data)
    assert refusal.value.code is Code.HB01


@given(st.binary(max_size=300))
def test_any_bytes_are_a_head_or_a_refusal(data: bytes) -> None:
    for parse in (parse_request, lambda data: parse_response(data, b"GET")):
        try:
            parse(data + b"\r\n\r\n")
        except ProxyError:
            continue


def test_an_answer_says_how_its_body_ends() -> None:
    read = parse_response
    assert read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", b"GET").length == 3
    assert read(b"HTTP/1.1 200 OK\r\nContent-Length: \t3 \r\n\r\n", b"GET").length == 3
    assert read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"GET").chunked
    assert read(b"HTTP/1.0 200 OK\r\n\r\n", b"GET").until_close
    assert read(b"HTTP/1.1 204 No Content\r\n\r\n", b"GET").bodiless
    assert read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", b"HEAD").bodiless
    assert read(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", b"GET").interim


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
def test_a_bad_answer_is_refused(data: bytes) -> None:
    with pytest.raises(ProxyError) as refusal:
        parse_response(data, b"GET")
    assert refusal.value.code is Code.PU02


@pytest.mark.parametrize(
    ("data", "found"), [(b"a\r\nb\r\n", False), (b"a\nb", True), (b"a\rb", True), (b"a\r", False), (b"", False)]
)
def test_a_line_that_ends_otherwise_is_seen(data: bytes, found: bool) -> None:
    assert bare_line_end(data) is found


def read_or_refused(read: Callable[[Data], RequestHead], data: Data) -> RequestHead | tuple[Code, str]:
    try:
        return read(data)
    except ProxyError as error:
        return error.code, error.told


@pytest.mark.parametrize("place", [b"/%ca", b"/a?%c", b"/?b%c", b"%c/", b"//%c:1/?%c"])
def test_a_head_behind_one_with_the_same_fields_is_read_as_if_it_were_the_first(place: bytes) -> None:
    reader = RequestReader()
    for byte in range(256):
        for method in (b"GET", b"FOO", b"OPTIONS", b"CONNECT"):
            reader.read(request(b"Accept: x\r\n"))
            second = request(b"Accept: x\r\n", line=method + b" " + place.replace(b"%c", bytes([byte])) + b" HTTP/1.1")
            assert read_or_refused(reader.read, second) == read_or_refused(parse_request, second)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"GET", b"PUT", b"M-SEARCH", b"BREW"]),
            st.sampled_from([b"/", b"/b", b"http://a/c", b"*", b"d", b"/" + b"e" * 1100, b"/" + b"f" * 17_000]),
            st.sampled_from([b"1.0", b"1.1", b"1.2"]),
            st.sampled_from([b"", b"Content-Length: 1\r\n", b"Connection: close\r\n", b"X: " + b"y" * 3000 + b"\r\n"]),
        ),
        max_size=6,
    )
)
def test_a_head_does_not_depend_on_what_its_connection_asked_before(
    asked: list[tuple[bytes, bytes, bytes, bytes]],
) -> None:
    reader = RequestReader()
    for method, target, version, lines in asked:
        data = request(lines, line=method + b" " + target + b" HTTP/" + version)
        assert read_or_refused(reader.read, data) == read_or_refused(parse_request, data)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"GET", b"PUT", b"CONNECT", b"B REW"]),
            st.sampled_from([b"/", b"/b", b"/ c", b"http://a/d", b"*", b"/" + b"e" * 1100, b"/" + b"f" * 17_000]),
            st.lists(
                st.sampled_from(
                    [
                        (b":path", b"/g"),
                        (b":protocol", b"websocket"),
                        (b"host", b"b"),
                        (b"content-length", b"1"),
                        (b"te", b"gzip"),
                        (b"cookie", b"h"),
                        (b"i", b"j" * 3000),
                    ]
                ),
                max_size=2,
            ),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_a_head_of_http2_does_not_depend_on_what_its_connection_asked_before(
    asked: list[tuple[bytes, bytes, list[Field], bool]],
) -> None:
    reader = Http2RequestReader()
    for method, target, more, ended in asked:
        fields = [(b":method", method), (b":path", target), (b":authority", b"a"), *more]
        read = read_or_refused(partial(reader.read, ended=ended), fields)
        assert read == read_or_refused(partial(parse_http2, ended=ended), fields)


@pytest.mark.parametrize("method", [b"GET", b"FOO", b"OPTIONS", b"CONNECT"])
def test_a_path_that_alone_differs_is_read_as_any(method: bytes) -> None:
    reader = Http2RequestReader()
    for place in [b"/%c", b"%c", b"/a%cb", b"*%c"]:
        for byte in range(256):
            rest = [(b":method", method), (b":protocol", b"websocket"), (b":authority", b"a")]
            first, second = ([*rest, (b":path", path)] for path in (b"/", place.replace(b"%c", bytes([byte]))))
            assert reader.read(first, ended=True) == parse_http2(first, ended=True)
            read = read_or_refused(partial(reader.read, ended=True), second)
            assert read == read_or_refused(partial(parse_http2, ended=True), second)


def test_fields_of_http2_that_are_said_again_are_not_read_again() -> None:
    reader, fields = Http2RequestReader(), [(b":method", b"GET"), (b":path", b"/"), (b":authority", b"a"), (b"b", b"c")]
    first = reader.read(fields, ended=True)
    assert reader.read(list(fields), ended=True) is first
    assert reader.read([fields[0], (b":path", b"/d"), *fields[2:]], ended=True).fields is first.fields
    assert reader.read(fields, ended=False).chunked
    reader.forget()
    assert reader.read(fields, ended=True) is not first


def test_an_answer_that_is_said_again_is_read_for_its_own_request() -> None:
    reader, said = AnswerReader(), b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"
    for data, method in ((said, b"GET"), (said, b"GET"), (said, b"HEAD"), (said.replace(b"3", b"4"), b"HEAD")):
        assert reader.read(data, method) == parse_response(data, method)
    assert reader.read(said, b"GET") is reader.read(said, b"GET")
