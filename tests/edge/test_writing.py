"""What the edge writes is what another reader reads, whatever it was made from."""

import struct
from ipaddress import ip_address

import h11
import pytest

from hawker.config.machine import HttpOptions, HttpResponseOptions, Port, ProxyProtoOptions
from hawker.edge.head import parse_request, parse_response
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.writing import (
    Origin,
    TcpEnds,
    answer_fields,
    http1_head,
    proxy_head,
    redirect_to_https,
    refusal,
    request_to_machine,
)

ORIGIN = Origin(client="192.0.2.7", address="192.0.2.1", port=443, tls=True, region="ams")


def test_a_request_to_a_machine_has_one_framing_and_our_word_for_where_it_is_from() -> None:
    head = parse_request(
        b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
        b"X-Forwarded-Port: 8443\r\nX-Forwarded-SSL: off\r\n\r\n"
    )
    written = request_to_machine(head, ORIGIN, ORIGIN.lines, b"ID-ams", pooled=True)
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(written)
    event = reader.next_event()
    assert isinstance(event, h11.Request)
    fields = [(bytes(name), bytes(value)) for name, value in event.headers]
    names = [name for name, _ in fields]
    assert names.count(b"transfer-encoding") == 1 and b"content-length" not in names and b"connection" not in names
    found = dict(fields)
    assert found[b"fly-client-ip"] == b"192.0.2.7" and found[b"x-forwarded-ssl"] == b"on"
    assert found[b"x-forwarded-port"] == b"8443" and found[b"x-forwarded-for"] == b"192.0.2.7, 192.0.2.1"


def test_an_answer_has_our_word_and_nothing_that_is_for_the_edge() -> None:
    said = b"HTTP/1.1 200 Fine\r\nContent-Length: 3\r\nfly-replay: x\r\nServer: app\r\n\r\n"
    head = parse_response(said, b"GET")
    fields = answer_fields(head, b"ID", Port())
    assert fields == [(b"server", b"hawker"), (b"via", b"1.1 hawker"), (b"fly-request-id", b"ID")]
    written = http1_head(head.status, head.reason, fields, b"content-length: 3\r\n\r\n")
    assert written.startswith(b"HTTP/1.1 200 Fine\r\nserver: hawker\r\n")
    assert written.endswith(b"\r\ncontent-length: 3\r\n\r\n")


def test_a_config_that_is_older_than_its_rules_frames_no_answer() -> None:
    """Tenants share a port: a proxy in front of it could take one's answer for another's."""
    set_before = {
        "Content-Length": "0",
        "Transfer-Encoding": ["chunked"],
        "Connection": "close",
        "x y": "z",
        "A": "b\r\nContent-Length: 0",
        "X-New": [" 1 ", "2"],
    }
    response = HttpResponseOptions(headers=set_before, pristine=True)
    head = parse_response(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", b"GET")
    fields = answer_fields(head, b"ID", Port(http_options=HttpOptions(response=response)))
    assert fields == [(b"x-new", b"1"), (b"x-new", b"2")]


def test_our_own_answers_have_their_code_and_nothing_of_the_client_in_their_head() -> None:
    answer = refusal(ProxyError(Code.PR03, "words"), b"ID-ams").http1()
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n") and answer.endswith(b"PR03 words (ID-ams)\n")
    assert b"retry-after: 1\r\n" in answer
    assert refusal(ProxyError(Code.HB07), b"ID").http1().count(b"allow:") == 1
    assert refusal(ProxyError(Code.PR01), b"ID").http1(head_only=True).endswith(b"\r\n\r\n")


def test_a_redirect_leads_to_the_same_host_and_path() -> None:
    head = parse_request(b"POST /a?b HTTP/1.1\r\nHost: shop.example:80\r\n\r\n")
    assert b"location: https://shop.example/a?b\r\n" in redirect_to_https(head, 443, b"ID").http1()
    assert b"location: https://shop.example:8443/a?b\r\n" in redirect_to_https(head, 8443, b"ID").http1()


def proxy_port(version: str | None) -> Port:
    return Port(port=25, handlers=("proxy_proto",), proxy_proto_options=ProxyProtoOptions(version=version))


@pytest.mark.parametrize(
    ("client", "address", "line"),
    [
        ("192.0.2.7", "192.0.2.1", b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 25\r\n"),
        ("2001:db8::7", "2001:db8::1", b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 25\r\n"),
        ("fe80::7%eth0", "fe80::1%eth0", b"PROXY TCP6 fe80::7 fe80::1 40000 25\r\n"),
        ("192.0.2.7", "2001:db8::1", b"PROXY UNKNOWN\r\n"),
        ("", "192.0.2.1", b"PROXY UNKNOWN\r\n"),
    ],
)
def test_a_proxy_head_of_version_1_is_one_line(client: str, address: str, line: bytes) -> None:
    for version in (None, "v1", "1"):
        assert proxy_head(proxy_port(version), TcpEnds(client, 40000, address, 25), "id") == line


@pytest.mark.parametrize(
    ("client", "address", "family"),
    [("192.0.2.7", "192.0.2.1", 0x11), ("2001:db8::7", "2001:db8::1", 0x21), ("", "192.0.2.1", 0x00)],
)
def test_a_proxy_head_of_version_2_says_its_own_length(client: str, address: str, family: int) -> None:
    head = proxy_head(proxy_port("v2"), TcpEnds(client, 40000, address, 25), "id")
    assert head == proxy_head(proxy_port("2"), TcpEnds(client, 40000, address, 25), "id")
    signature, version, said, length = struct.unpack_from(">12sBBH", head)
    assert (signature, version, said) == (b"\r\n\r\n\0\r\nQUIT\n", 0x21, family)
    assert len(head) == 16 + length and head.endswith(b"\x05\x00\x02id")
    if family:
        packed = ip_address(client).packed + ip_address(address).packed
        assert head[16:-5] == packed + struct.pack(">HH", 40000, 25)


def test_a_port_without_the_handler_has_no_proxy_head() -> None:
    port = Port(port=25, handlers=("tcp",), proxy_proto_options=ProxyProtoOptions(version="v2"))
    assert proxy_head(port, TcpEnds("192.0.2.7", 40000, "192.0.2.1", 25), "id") == b""
