"""What the edge writes is what another reader reads, whatever it was made from."""

import h11

from hawker.config.machine import Port
from hawker.edge.head import parse_request, parse_response
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.writing import Origin, answer_to_client, own_answer, redirect_to_https, request_to_machine

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


def test_an_answer_keeps_its_length_and_says_when_the_connection_ends() -> None:
    request = parse_request(b"GET / HTTP/1.0\r\n\r\n")
    head = parse_response(b"HTTP/1.1 200 Fine\r\nContent-Length: 3\r\nfly-replay: x\r\n\r\n", b"GET")
    kept = answer_to_client(head, request, b"ID", Port(), keep_alive=True)
    assert kept.startswith(b"HTTP/1.1 200 Fine\r\n") and b"connection: keep-alive" in kept and b"replay" not in kept
    assert b"connection: close" in answer_to_client(head, request, b"ID", Port(), keep_alive=False)


def test_our_own_answers_have_their_code_and_nothing_of_the_client_in_their_head() -> None:
    answer = own_answer(ProxyError(Code.PR03, "words"), b"ID-ams")
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n") and answer.endswith(b"PR03 words (ID-ams)\n")
    assert b"retry-after: 1\r\n" in answer and own_answer(ProxyError(Code.HB07), b"ID").count(b"allow:") == 1
    assert own_answer(ProxyError(Code.PR01), b"ID", head_only=True).endswith(b"\r\n\r\n")


def test_a_redirect_leads_to_the_same_host_and_path() -> None:
    head = parse_request(b"POST /a?b HTTP/1.1\r\nHost: shop.example:80\r\n\r\n")
    assert b"location: https://shop.example/a?b\r\n" in redirect_to_https(head, 443, b"ID")
    assert b"location: https://shop.example:8443/a?b\r\n" in redirect_to_https(head, 8443, b"ID")
