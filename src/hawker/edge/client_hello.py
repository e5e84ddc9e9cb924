"""The first message of a TLS client, read before TLS begins: the name that it asks for, which decides the certificate.
Pure; RFC 8446 4.1.2, RFC 6066 3, RFC 7301. Nothing is believed of a length that is not there.
"""

import re
import struct

from hawker.value_object import ValueObject

MAX_HELLO_BYTES = 16 * 1024
"""The most bytes of a ClientHello. Browsers send 2 KiB."""
_RECORD_HEAD, _HANDSHAKE, _CLIENT_HELLO, _MAX_RECORD = 5, 22, 1, 16 * 1024
_FRAGMENTS = 16
_VERSION_AND_RANDOM = 2 + 32
_BEFORE_EXTENSIONS = (1, 2, 1)  # session, ciphers, compression: how wide the length of each is
_EXTENSION = struct.Struct(">HH")  # its kind and its length stand before it
_SERVER_NAME, _HOST_NAME, _ALPN = 0, 0, 16
_NAME = re.compile(rb"[A-Za-z0-9_.-]{1,254}")


class BadHelloError(ValueError):
    """The bytes are no ClientHello, or a too large one."""


class ClientHello(ValueObject, frozen=True):
    """The parts of a ClientHello that the edge reads. `name` is in lower case without a dot at the end; empty when the
    client gave none. `alpn` are the protocols that the client offers, in its order."""

    name: str
    alpn: tuple[bytes, ...] = ()


def read_hello(data: bytes | bytearray) -> ClientHello | None:
    """The ClientHello in the bytes; None while some of it is missing. Raises `BadHelloError`."""
    message = _message(data)
    if message is None:
        return None
    extensions = _extensions(message)
    return ClientHello(_server_name(extensions), _protocols(extensions))


def _message(data: bytes | bytearray) -> bytes | None:
    """The handshake message, out of its records."""
    found, at = bytearray(), 0
    for _ in range(_FRAGMENTS):
        if data[at : at + 1] and data[at] != _HANDSHAKE:
            raise BadHelloError("this is no TLS")
        if len(data) < at + _RECORD_HEAD:
            return None
        length = int.from_bytes(data[at + 3 : at + 5], "big")
        if data[at + 1] != 3 or not 0 < length <= _MAX_RECORD:
            raise BadHelloError("a record is malformed")
        found += data[at + _RECORD_HEAD : at + _RECORD_HEAD + length]
        whole = len(data) >= at + _RECORD_HEAD + length
        if found and found[0] != _CLIENT_HELLO:
            raise BadHelloError("the first message is no ClientHello")
        if len(found) >= 4:
            wanted = 4 + int.from_bytes(found[1:4], "big")
            if wanted > MAX_HELLO_BYTES:
                raise BadHelloError(f"a ClientHello of {wanted} bytes, {MAX_HELLO_BYTES} at most")
            if len(found) >= wanted:
                return bytes(found[4:wanted])
        if not whole:
            return None
        at += _RECORD_HEAD + length
    raise BadHelloError("a ClientHello in too many pieces")


def _field(data: bytes, at: int, width: int) -> tuple[bytes, int]:
    """What its length, of so many bytes, stands before, and where it ends. Raises `BadHelloError` beyond the end."""
    begin = at + width
    end = begin + int.from_bytes(data[at:begin], "big")
    if end > len(data):
        raise BadHelloError("a field is longer than the message")
    return data[begin:end], end


def _extensions(message: bytes) -> dict[int, bytes]:
    at = _VERSION_AND_RANDOM
    for width in _BEFORE_EXTENSIONS:
        _, at = _field(message, at, width)
    found: dict[int, bytes] = {}
    if at == len(message):
        return found
    data, at = _field(message, at, 2)[0], 0
    while at + _EXTENSION.size <= len(data):
        kind, length = _EXTENSION.unpack_from(data, at)
        if kind in found:
            raise BadHelloError("an extension is there twice")
        begin = at + _EXTENSION.size
        at = begin + length
        found[kind] = data[begin:at]
    if at != len(data):
        raise BadHelloError("a field is longer than the message")
    return found


def _server_name(extensions: dict[int, bytes]) -> str:
    if _SERVER_NAME not in extensions:
        return ""
    names, at = _field(extensions[_SERVER_NAME], 0, 2)[0], 0
    while at < len(names):
        kind, (name, at) = names[at], _field(names, at + 1, 2)
        if kind == _HOST_NAME:
            if not _NAME.fullmatch(name):
                raise BadHelloError("the server's name is malformed")
            return name.decode().lower().rstrip(".")
    return ""


def _protocols(extensions: dict[int, bytes]) -> tuple[bytes, ...]:
    if _ALPN not in extensions:
        return ()
    named, at, found = _field(extensions[_ALPN], 0, 2)[0], 0, []
    while at < len(named):
        name, at = _field(named, at, 1)
        found.append(name)
    return tuple(found)


# What clients of PostgreSQL say before TLS. Source: its protocol's documentation, "SSL Session Encryption".

POSTGRES_ALPN, POSTGRES_ASKS = "postgresql", 3
_ASK = struct.Struct(">II")
_SSL, _GSS, _WORD_BYTES = 80_877_103, 80_877_104, 8
_NO_TLS = b"SFATAL\0VFATAL\0C28000\0MTLS is required: connect with sslmode=require\0\0"


class PostgresAnswer(ValueObject, frozen=True):
    """An answer to a client of PostgreSQL before TLS. `answer` goes to the client, for as many of its bytes as were
    `taken`: more bytes must come when it is empty. `refused`: it is the last answer, and the connection ends."""

    answer: bytes = b""
    taken: int = 0
    refused: bool = False


def postgres_answer(data: bytes | bytearray) -> PostgresAnswer | None:
    """The answer to the first bytes of a client of PostgreSQL; None once the client begins with TLS."""
    if data[0] == _HANDSHAKE:  # a record of TLS
        return None
    if len(data) < _WORD_BYTES:
        return PostgresAnswer()
    length, code = _ASK.unpack_from(data)
    if length == _WORD_BYTES and code == _SSL:
        return PostgresAnswer(b"S", _WORD_BYTES)
    if length == _WORD_BYTES and code == _GSS:
        return PostgresAnswer(b"N", _WORD_BYTES)
    return PostgresAnswer(b"E" + (len(_NO_TLS) + 4).to_bytes(4, "big") + _NO_TLS, len(data), refused=True)
