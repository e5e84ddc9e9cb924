"""Heads of messages: what is refused, and what is understood of the rest. Pure; RFC 9110, 9112 and 9113.

llhttp parses those of HTTP/1.1; here is what it accepts and two servers could read in two ways. What is not named here
reaches a machine rewritten, never as it came, so no request of a client can become two.
"""

import re

import httptools
from msgspec.structs import replace

from hawker.edge.refusal import Code, ProxyError
from hawker.value_object import ValueObject

HEAD_BYTES = 64 << 10
LINE_BYTES = 16 << 10
FIELD_BYTES = 16 << 10
FIELDS = 128
_METHOD = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}"
_REQUEST_LINE = re.compile(rb"(" + _METHOD + rb") ([\x21\x22\x24-\x7e]+) HTTP/1\.([01])\r\n")
_PLAIN_TARGET = rb"/[\x21\x22\x24-\x7e]{0,1023}"
_PLAIN_LINE = re.compile(rb"(" + _METHOD + rb") (" + _PLAIN_TARGET + rb")(?= HTTP/1\.[01]\r\n)")
_ABSOLUTE = re.compile(rb"(?i)https?://([^/?]*)(.*)", re.DOTALL)
_HOST = re.compile(rb"([A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\])(?::(\d{1,5}))?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_HOP = frozenset(
    b"""connection keep-alive proxy-connection proxy-authorization proxy-authenticate te upgrade
    transfer-encoding http2-settings""".split()
)
"""Fields for one connection alone; they go no further."""
_READ = _HOP | {b"host", b"content-length", b"expect"}
"""Fields that the edge reads itself: those of `_HOP`, and the host, the length and what the client expects."""
_NO_BODY = frozenset({204, 304})
_TARGET, _METHOD_ALONE = re.compile(rb"[\x21\x22\x24-\x7e]+"), re.compile(_METHOD)
_PLAIN_TARGET_ALONE, _PATH = re.compile(_PLAIN_TARGET), b":path"
_NONE_OF_HTTP2 = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_WEBSOCKET, _WEBSOCKET_KEY = b"websocket", b"aGF3a2VyLXdlYnNvY2tldA=="
"""The protocol WebSocket, and the key of each such request that comes by HTTP/2, which has no such key. HTTP/1.1 wants
one, so that no cache answers for a machine: no cache is between us."""
_REMEMBERED_BYTES = 2 << 10
IDEMPOTENT = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"})

Field = tuple[bytes, bytes]


class RequestHead(ValueObject, frozen=True):
    """The head of a request. `target` is in origin form, or `*`. `host` is the name that was asked for, in lower case
    and without a port. `fields` are those that go on, in order, with names in lower case. `length` None: no body, or a
    chunked one. `via` is the version of HTTP that the request came by."""

    method: bytes
    """The method as it was sent: upper and lower case differ."""
    target: bytes
    minor: int
    """The minor version of HTTP/1: 0 or 1; 1 for a request of HTTP/2."""
    host: str
    authority: bytes
    """The `host` as the client wrote it, with its port if it has one; machines are told this text."""
    fields: tuple[Field, ...]
    length: int | None
    chunked: bool
    """Whether the body comes in pieces, and ends with a piece of no bytes."""
    keep_alive: bool
    """Whether the client's connection may be used for another request."""
    expects_continue: bool
    """Whether the client waits with its body for `100 Continue`."""
    trailers: bool
    """Whether the client takes fields behind a body."""
    upgrade: bytes
    """The protocol that the client wants to change to; empty for none, and `?` for more than one field."""
    via: bytes = b"1.1"

    @property
    def has_body(self) -> bool:
        return self.chunked or bool(self.length)


class ResponseHead(ValueObject, frozen=True):
    """The head of an answer. `length` None and not `chunked`: the body ends with the connection, unless `bodiless`."""

    status: int
    """The status, three digits, as the machine has it."""
    reason: bytes
    """The words behind the status, which mean nothing; may be empty."""
    fields: tuple[Field, ...]
    length: int | None
    chunked: bool
    keep_alive: bool
    """Whether the machine's connection may be used for another request."""
    bodiless: bool
    upgrade: bytes
    """The protocol that is spoken behind a 101; empty for none."""

    @property
    def interim(self) -> bool:
        return 100 <= self.status < 200 and self.status != 101

    @property
    def until_close(self) -> bool:
        return not self.bodiless and not self.chunked and self.length is None


class _Collected:
    """What llhttp calls back."""

    def __init__(self) -> None:
        self.fields: list[Field] = []
        self.reason = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_status(self, reason: bytes) -> None:
        self.reason += reason


class _Fields:
    """One look at all fields of a head."""

    def __init__(self, fields: list[Field]) -> None:
        self.kept: list[Field] = []
        self.hosts: list[bytes] = []
        self.lengths: list[bytes] = []
        self.encodings: list[bytes] = []
        self.tokens: set[bytes] = set()
        self.upgrade = self.expect = self.te = b""
        for given, value in fields:
            name = given.lower()
            if name in _READ:
                self._take(name, value)
            elif b"_" not in name:
                self.kept.append((name, value.strip(b" \t")))  # llhttp leaves what follows it, HTTP/2 has none of it
        if self.tokens - {b"close", b"keep-alive", b"upgrade", b"te"}:
            self.kept = [field for field in self.kept if field[0] not in self.tokens]

    def _take(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self.hosts.append(value)
        elif name == b"content-length":
            self.lengths.append(value.strip(b" \t"))
        elif name == b"transfer-encoding":
            self.encodings.append(value.strip(b" \t").lower())
        elif name == b"connection":
            self.tokens.update(token.strip().lower() for token in value.split(b","))
        elif name == b"upgrade":
            self.upgrade = value.strip() if not self.upgrade else b"?"
        elif name == b"expect":
            self.expect = value.strip().lower()
        elif name == b"te":
            self.te = value.lower()

    @property
    def wants_upgrade(self) -> bytes:
        return self.upgrade if b"upgrade" in self.tokens else b""


def parse_request(data: bytes) -> RequestHead:
    """The head of a request of HTTP/1.1. `data` is a head, whole, with its empty line. Raises `ProxyError`."""
    line = _REQUEST_LINE.match(data)
    if line is None:
        long = data.find(b"\r\n") > LINE_BYTES
        raise ProxyError(Code.HB03) if long else _malformed("its first line is none of HTTP/1.1")
    method, target, minor = line[1], line[2], int(line[3])
    if len(target) > LINE_BYTES:
        raise ProxyError(Code.HB03)
    if method == b"CONNECT":
        raise ProxyError(Code.HB07)
    found = _Fields(_collected(data))
    length, chunked = _framing(found, minor)
    if found.wants_upgrade and (chunked or length):
        raise _malformed("it has a body and asks for an upgrade")
    authority, host = _authority(found.hosts, minor)
    keep_alive = b"close" not in found.tokens and (minor == 1 or b"keep-alive" in found.tokens)
    return RequestHead(
        method=method,
        target=_origin_form(method, target, authority),
        minor=minor,
        host=host,
        authority=authority,
        fields=tuple(found.kept),
        length=length,
        chunked=chunked,
        keep_alive=keep_alive,
        expects_continue=minor == 1 and found.expect == b"100-continue",
        trailers=b"trailers" in found.te,
        upgrade=found.wants_upgrade if minor == 1 else b"",
        via=b"1.%d" % minor,
    )


class RequestReader:
    """Reads the request heads of one connection. Clients mostly send the same fields again: those are not read again
    where nothing but the path differs, in bytes that llhttp takes in any path."""

    def __init__(self) -> None:
        self._head: RequestHead | None = None
        self._data = b""  # that it was read from
        self._end = 0  # of the target in there

    def read(self, data: bytes) -> RequestHead:
        """The head of a request, as `parse_request` reads it. Raises `ProxyError`."""
        head = self._head
        if head is not None and data == self._data:
            return head
        line, behind = _PLAIN_LINE.match(data), self._data[self._end :]
        if line is not None and head is not None and line[1] == head.method and data[line.end() :] == behind:
            return replace(head, target=line[2])
        head = parse_request(data)
        if line is not None and len(data) <= _REMEMBERED_BYTES:
            self._head, self._data, self._end = head, data, line.end()
        else:
            self._head, self._data = None, b""
        return head


def parse_http2(fields: list[Field], *, ended: bool) -> RequestHead:
    """The head of a request of HTTP/2, as HTTP/1.1 would say it. `ended`: no body comes. Raises `ProxyError`."""
    pseudo = {name: value for name, value in fields if name.startswith(b":")}
    given = [field for field in fields if not field[0].startswith(b":")]
    _check_http2(given)
    method, target, upgrade = pseudo.get(b":method", b""), pseudo.get(b":path", b""), b""
    if len(target) > LINE_BYTES:
        raise ProxyError(Code.HB03)
    if method == b"CONNECT":
        if pseudo.get(b":protocol", b"").lower() != _WEBSOCKET:
            raise ProxyError(Code.HB07)
        method, upgrade = b"GET", _WEBSOCKET
        given.append((b"sec-websocket-key", _WEBSOCKET_KEY))
    if not _METHOD_ALONE.fullmatch(method) or not _TARGET.fullmatch(target):
        raise _malformed("its method or its path is none")
    found = _Fields(_joined_cookies(given))
    hosts = [pseudo[b":authority"]] if b":authority" in pseudo else found.hosts
    if any(each.lower() != hosts[0].lower() for each in found.hosts):
        raise _malformed("it names two hosts")
    authority, host = _authority(hosts, 1)
    length, _ = _framing(found, 1)
    return RequestHead(
        method=method,
        target=_origin_form(method, target, authority),
        minor=1,
        host=host,
        authority=authority,
        fields=tuple(found.kept),
        length=length,
        chunked=not ended and length is None and not upgrade,
        keep_alive=True,
        expects_continue=found.expect == b"100-continue",
        trailers=b"trailers" in found.te,
        upgrade=upgrade,
        via=b"2.0",
    )


class Http2RequestReader:
    """Reads the request heads of one connection of HTTP/2, as `RequestReader` does."""

    def __init__(self) -> None:
        self._head: RequestHead | None = None
        self._fields: list[Field] = []
        self._ended = False
        self._place = 0  # of the path among the fields

    def read(self, fields: list[Field], *, ended: bool) -> RequestHead:
        """The head of a request, as `parse_http2` reads it. Raises `ProxyError`."""
        head, at = self._head, self._place
        if head is not None and ended is self._ended:
            if fields == self._fields:
                return head
            same = fields[:at] == self._fields[:at] and fields[at + 1 :] == self._fields[at + 1 :]
            if same and fields[at][0] == _PATH and _PLAIN_TARGET_ALONE.fullmatch(fields[at][1]):
                return replace(head, target=fields[at][1])
        head = parse_http2(fields, ended=ended)
        self._remember(fields, head, ended=ended)
        return head

    def _remember(self, fields: list[Field], head: RequestHead, *, ended: bool) -> None:
        """Not what is large, nor what names two paths."""
        names = [name for name, _ in fields]
        if names.count(_PATH) == 1 and sum(len(name) + len(value) for name, value in fields) <= _REMEMBERED_BYTES:
            self._head, self._fields, self._ended, self._place = head, fields, ended, names.index(_PATH)
        else:
            self.forget()

    def forget(self) -> None:
        """Forget the last head: a connection that rests keeps nothing of it."""
        self._head, self._fields = None, []


def _check_http2(fields: list[Field]) -> None:
    """The library that reads frames refuses most of it; here it does not matter which version does."""
    if len(fields) > FIELDS:
        raise ProxyError(Code.HB02, f"it has more than {FIELDS} fields")
    for name, value in fields:
        if len(name) + len(value) > FIELD_BYTES:
            raise ProxyError(Code.HB02, f"a field has more than {FIELD_BYTES >> 10} KiB")
        if name in _NONE_OF_HTTP2 or name != name.lower() or (name == b"te" and value != b"trailers"):
            raise _malformed("it has a field that HTTP/2 has none of")
        if b"\r" in value or b"\n" in value or b"\0" in value:
            raise _malformed("a field has bytes that none may have")


def _joined_cookies(fields: list[Field]) -> list[Field]:
    """RFC 9113, 8.2.3: they may come in crumbs."""
    crumbs = [value for name, value in fields if name == b"cookie"]
    if len(crumbs) < 2:
        return fields
    return [*(field for field in fields if field[0] != b"cookie"), (b"cookie", b"; ".join(crumbs))]


def parse_response(data: bytes, method: bytes) -> ResponseHead:
    """The head of a machine's answer. `method` is that of the request. A machine is trusted as little as a client.
    Raises `ProxyError`."""
    if len(data) > HEAD_BYTES or bare_line_end(data):
        raise ProxyError(Code.PU02, known="the machine's answer is malformed")
    collected = _Collected()
    parser = httptools.HttpResponseParser(collected)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise ProxyError(Code.PU02, known=f"the machine's answer is malformed: {error}") from error
    status = parser.get_status_code()
    found = _Fields(collected.fields)
    version = parser.get_http_version()
    encodings, lengths = found.encodings, set(found.lengths)
    bad_length = len(lengths) > 1 or any(not _LENGTH.fullmatch(each) for each in lengths)
    if version not in ("1.0", "1.1") or (encodings and encodings != [b"chunked"]) or bad_length:
        raise ProxyError(Code.PU02, known="the machine's answer has a version, length or encoding that is none")
    keep_alive = b"close" not in found.tokens and (version == "1.1" or b"keep-alive" in found.tokens)
    return ResponseHead(
        status=status,
        reason=collected.reason,
        fields=tuple(found.kept),
        length=int(lengths.pop()) if lengths and not encodings else None,
        chunked=bool(encodings),
        keep_alive=keep_alive,
        bodiless=method == b"HEAD" or status in _NO_BODY or 100 <= status < 200,
        upgrade=found.wants_upgrade,
    )


class AnswerReader:
    """Reads the answer heads of one connection. A head that comes again is not read again."""

    def __init__(self) -> None:
        self._data, self._method = b"", b""
        self._head: ResponseHead | None = None

    def read(self, data: bytes, method: bytes) -> ResponseHead:
        """The head of an answer, as `parse_response` reads it. Raises `ProxyError`."""
        if self._head is not None and data == self._data and method == self._method:
            return self._head
        head = parse_response(data, method)
        known = len(data) <= _REMEMBERED_BYTES
        self._head, self._data, self._method = (head, data, method) if known else (None, b"", b"")
        return head


def parse_http2_answer(fields: list[Field], method: bytes, *, ended: bool) -> ResponseHead:
    """The head of an answer of a machine that speaks HTTP/2; `ended`: no body comes. Raises `ProxyError`."""
    status = next((value for name, value in fields if name == b":status"), b"")
    found = _Fields([field for field in fields if not field[0].startswith(b":")])
    if not status.isdigit() or len(status) != 3 or status == b"101" or len(set(found.lengths)) > 1:
        raise ProxyError(Code.PU02, known="the machine's answer has a status or a length that is none")
    number, length = int(status), int(found.lengths[0]) if found.lengths else None
    bodiless = ended or method == b"HEAD" or number in _NO_BODY or number < 200
    return ResponseHead(
        status=number,
        reason=b"",
        fields=tuple(found.kept),
        length=0 if ended and length is None and method != b"HEAD" and number not in _NO_BODY else length,
        chunked=not bodiless and length is None,
        keep_alive=True,
        bodiless=bodiless,
        upgrade=b"",
    )


def bare_line_end(data: bytes | bytearray) -> bool:
    """Whether a line of a head ends otherwise than with CR LF: one server takes such an end for one, another does
    not."""
    whole = data.count(b"\r\n")
    return data.count(b"\n") != whole or data.count(b"\r", 0, len(data) - 1) > whole


def _collected(data: bytes) -> list[Field]:
    collected = _Collected()
    try:
        httptools.HttpRequestParser(collected).feed_data(data)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise _malformed(str(error)) from error
    if len(collected.fields) > FIELDS:
        raise ProxyError(Code.HB02, f"it has more than {FIELDS} fields")
    if any(len(name) + len(value) > FIELD_BYTES for name, value in collected.fields):
        raise ProxyError(Code.HB02, f"a field has more than {FIELD_BYTES >> 10} KiB")
    return collected.fields


def _framing(found: _Fields, minor: int) -> tuple[int | None, bool]:
    """The length of the body and whether it is chunked."""
    if found.encodings:
        if found.encodings != [b"chunked"] or minor == 0 or found.lengths:
            raise _malformed("its body is framed in a way that is not served")
        return None, True
    if len(found.lengths) > 1 or any(not _LENGTH.fullmatch(each) for each in found.lengths):
        raise _malformed("its length is none")
    return (int(found.lengths[0]) if found.lengths else None), False


def _authority(hosts: list[bytes], minor: int) -> tuple[bytes, str]:
    """As it came, and the name alone. HTTP/1.0 has none."""
    if not hosts and minor == 0:
        return b"", ""
    if len(hosts) != 1:
        raise _malformed("it names no host, or several")
    match = _HOST.fullmatch(hosts[0].strip())
    if match is None or int(match[2] or 0) > 65_535:
        raise _malformed("its host is none")
    return match[0], match[1].decode("ascii").lower().rstrip(".")


def _origin_form(method: bytes, target: bytes, authority: bytes) -> bytes:
    if target.startswith(b"/"):
        return target
    if target == b"*" and method == b"OPTIONS":
        return target
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None or absolute[1].lower() != authority.lower():
        raise _malformed("its target is none, or names another host")
    return absolute[2] if absolute[2].startswith(b"/") else b"/" + absolute[2]


def _malformed(why: str) -> ProxyError:
    return ProxyError(Code.HB01, f"{Code.HB01.words}: {why}")


def bare_end_since(head: bytearray, looked: int) -> bool:
    """Whether a line ends with CR or LF alone in the bytes behind the first `looked`; so a head that comes byte by byte
    costs no more than one that comes at once. A line's end is not cut in two."""
    if len(head) <= looked:
        return False
    return bare_line_end(head[looked:] if not looked or head[looked - 1 : looked] == b"\n" else head[looked - 1 :])
