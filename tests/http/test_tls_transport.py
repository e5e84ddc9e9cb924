"""An open TLS connection between two buffers: pauses, ends, and clients that want control messages for ever."""

import asyncio
import ssl
from typing import Any

import pytest

from hawker.http.tls_transport import TlsTransport
from hawker.secret.certificate_chain import self_signed, server_context
from tests.waiting import eventually


class Wire(asyncio.Transport):
    """The plain transport below, played."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.calls: list[str] = []

    def write(self, data: Any) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return "close" in self.calls or "abort" in self.calls

    def __getattribute__(self, name: str) -> Any:
        if name in ("close", "abort", "pause_reading", "resume_reading", "write_eof"):
            return lambda: self.calls.append(name)
        return super().__getattribute__(name)


class Reader(asyncio.Protocol):
    def __init__(self, *, keep: bool = True) -> None:
        self.data = bytearray()
        self.ended = False
        self.lost: list[Exception | None] = []
        self.pauses = False
        self.transport: Any = None
        self._keep = keep

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        if self.pauses:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.ended = True
        return self._keep

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class Joined:
    """A client and a transport whose handshake is done."""

    def __init__(self, *, keep: bool = True, versions: tuple[str, ...] = ()) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.into, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self.into, self.out)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = server_context(self_signed("hawker.invalid", 1.8e9), versions)
        tls = server.wrap_bio(incoming, outgoing, server_side=True)
        ends = {id(each): each for each in (self.client, tls)}
        while ends:
            for each in list(ends.values()):
                try:
                    each.do_handshake()
                    del ends[id(each)]
                except ssl.SSLWantReadError:
                    pass
                incoming.write(self.out.read())
                self.into.write(outgoing.read())
        self.wire, self.reader = Wire(), Reader(keep=keep)
        self.transport = TlsTransport(self.wire, tls, incoming, outgoing, self.reader)
        self.transport.begin()

    def say(self, data: bytes) -> None:
        self.client.write(data)
        self.transport.data_received(self.out.read())

    def hear(self) -> bytes:
        self.into.write(bytes(self.wire.sent))
        self.wire.sent.clear()
        found = b""
        while True:
            try:
                data = self.client.read()
            except ssl.SSLWantReadError:
                return found
            except ssl.SSLZeroReturnError:
                return found + b"<end>"
            if not data:
                return found + b"<end>"
            found += data


async def test_bytes_pass_both_ways() -> None:
    joined = Joined()
    joined.say(b"hello")
    assert joined.reader.data == b"hello"
    joined.transport.write(b"x" * 200_000)
    joined.transport.write(b"")
    assert joined.hear() == b"x" * 200_000


async def test_a_reader_that_pauses_is_given_nothing_until_it_goes_on() -> None:
    joined = Joined()
    joined.reader.pauses = True
    joined.client.write(b"a" * 70_000)
    joined.client.write(b"b" * 70_000)
    joined.transport.data_received(joined.out.read())
    assert len(joined.reader.data) < 140_000 and "pause_reading" in joined.wire.calls
    joined.reader.pauses = False
    joined.transport.resume_reading()
    assert joined.transport.is_reading()
    await eventually(lambda: len(joined.reader.data) == 140_000)
    assert joined.wire.calls[-1] == "resume_reading"


async def test_an_answer_that_is_held_goes_with_the_last_word_of_tls() -> None:
    joined = Joined()
    joined.transport.hold()
    joined.transport.write(b"that is all")
    assert not joined.wire.sent
    joined.transport.close()
    assert joined.hear() == b"that is all<end>" and joined.wire.calls == ["close"]


async def test_half_an_end_of_either_side_leaves_the_other_half() -> None:
    joined = Joined()
    joined.transport.write_eof()
    joined.transport.write(b"too late")
    assert joined.hear() == b"<end>" and joined.wire.calls == ["write_eof"]
    joined.say(b"still here")
    assert joined.reader.data == b"still here"
    other = Joined()
    with pytest.raises(ssl.SSLWantReadError):
        other.client.unwrap()
    other.transport.data_received(other.out.read())
    assert other.reader.ended and not other.wire.calls
    other.transport.write(b"answer")
    assert b"answer" in bytes(other.wire.sent) or other.wire.sent


async def test_a_reader_that_has_enough_closes_with_a_word() -> None:
    joined = Joined(keep=False)
    assert not joined.transport.eof_received()
    assert joined.wire.calls == ["close"] and joined.hear() == b"<end>"
    joined.transport.connection_lost(None)
    assert joined.reader.lost == [None]


async def test_bytes_that_are_no_tls_end_it_as_something_wrong() -> None:
    joined = Joined()
    joined.transport.data_received(b"\x17\x03\x03\x00\x20" + b"\0" * 32)
    assert joined.wire.calls == ["close"] and joined.wire.sent
    joined.transport.connection_lost(None)
    assert isinstance(joined.reader.lost[0], ConnectionResetError)


async def test_a_client_that_asks_for_control_messages_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS 1.2: each renegotiation that is asked for is answered by a warning, and not done."""
    monkeypatch.setattr("hawker.http.tls_transport._MAX_CONTROL_BYTES", 100)
    joined = Joined()
    joined.transport._outgoing.write(b"c" * 101)  # what OpenSSL would have us say, however it comes about
    joined.say(b"x")
    assert joined.wire.calls == ["abort"]


async def test_a_renegotiation_is_not_done() -> None:
    joined = Joined(versions=("TLSv1.2",))
    assert joined.client.version() == "TLSv1.2"
    joined.say(b"before")
    assert joined.reader.data == b"before"
    assert joined.transport._tls.context.options & ssl.OP_NO_RENEGOTIATION
