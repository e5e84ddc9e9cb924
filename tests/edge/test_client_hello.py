"""A client's first message, in pieces, in garbage, from a real client."""

import random
import ssl

import pytest

from hawker.edge.client_hello import MAX_HELLO_BYTES, BadHelloError, read_hello


def real(name: str | None) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def test_the_name_of_a_real_client_is_found_however_it_comes() -> None:
    data = real("Shop.Example.COM")
    for end in range(len(data)):
        assert read_hello(data[:end]) is None
    found = read_hello(data)
    assert found is not None and found.name == "shop.example.com"
    assert read_hello(data + b"more") == found


def test_a_client_without_a_name_has_none() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    found = read_hello(outgoing.read())
    assert found is not None and found.name == ""


def test_a_hello_in_several_records_is_one() -> None:
    data = real("shop.example.com")
    body = data[5:]
    cut = b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in (body[:3], body[3:90], body[90:]))
    assert read_hello(cut) == read_hello(data)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x16\x02\x01\x00\x05",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x50\x00",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        b"\x16\x03\x01\x40\x00\x01" + (MAX_HELLO_BYTES + 1).to_bytes(3, "big"),
        b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
        b"\x16\x03\x01\x00\x01\x01" + b"\x16\x03\x01\x00\x01\x00" * 2 + b"\x16\x03\x01\x00\x01\xff" * 30,
    ],
)
def test_a_record_that_is_no_hello_is_refused(data: bytes) -> None:
    with pytest.raises(BadHelloError):
        read_hello(data)


def test_no_bytes_raise_anything_else() -> None:
    chance = random.Random(15)
    good = bytearray(real("shop.example.com"))
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            read_hello(data)
        except BadHelloError:
            continue
