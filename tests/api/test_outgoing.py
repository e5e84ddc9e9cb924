import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import LIST_MACHINES, ListMachinesQuery, MachineParams, StopRequest
from hawker.api.contract.machine_operation import STOP_MACHINE, WAIT_MACHINE, WaitQuery
from hawker.api.contract.node import LIST_REGIONS
from hawker.api.outgoing import RouteCodecs
from hawker.errors import BadRequest
from hawker.machine import State

BASE = "/below"
PARAMS = MachineParams(app_name="a/b c", machine_id="..%")


def test_parameters_are_quoted_into_the_path() -> None:
    outgoing = RouteCodecs(WAIT_MACHINE).outgoing(BASE, PARAMS, WaitQuery(timeout=5), None)
    assert outgoing.target == f"{BASE}/v1/apps/a%2Fb%20c/machines/..%25/wait?timeout=5"
    assert (outgoing.method, outgoing.data, outgoing.headers) == ("GET", b"", {})


def test_a_query_is_quoted_and_leaves_out_defaults() -> None:
    query = ListMachinesQuery(state=(State.STARTED,), metadata={"a b": "c&d=é"})
    outgoing = RouteCodecs(LIST_MACHINES).outgoing(BASE, AppParams(app_name="a"), query, None)
    assert outgoing.target == f"{BASE}/v1/apps/a/machines?state=started&metadata.a%20b=c%26d%3D%C3%A9"


def test_nonce_and_key_are_headers_and_a_body_is_json() -> None:
    body = StopRequest(signal="SIGTERM")
    outgoing = RouteCodecs(STOP_MACHINE).outgoing(BASE, PARAMS, None, body, nonce="n", idempotency_key="k")
    assert outgoing.data == b'{"signal":"SIGTERM"}'
    assert outgoing.headers == {
        "fly-machine-lease-nonce": "n",
        "idempotency-key": "k",
        "content-type": "application/json",
    }


def test_a_field_left_out_is_empty() -> None:
    assert RouteCodecs(LIST_REGIONS).outgoing(BASE, None, None, None).target == f"{BASE}/v1/platform/regions"
    assert RouteCodecs(STOP_MACHINE).outgoing(BASE, PARAMS, None, None).data == b"{}"


def test_the_whole_of_a_request() -> None:
    outgoing = RouteCodecs(STOP_MACHINE).outgoing(BASE, PARAMS, None, StopRequest(signal="SIGTERM"), nonce="n")
    head, _, data = outgoing.encoded("host:1", {"authorization": "Bearer t"}).partition(b"\r\n\r\n")
    assert data == outgoing.data
    assert head.decode().split("\r\n") == [
        f"POST {outgoing.target} HTTP/1.1",
        "host: host:1",
        f"content-length: {len(data)}",
        "authorization: Bearer t",
        "fly-machine-lease-nonce: n",
        "content-type: application/json",
    ]


@pytest.mark.parametrize("nonce", ["a\r\nhost: b", "a\nb", "a\0b"])
def test_no_value_begins_a_line_of_its_own(nonce: str) -> None:
    outgoing = RouteCodecs(STOP_MACHINE).outgoing(BASE, PARAMS, None, None, nonce=nonce)
    with pytest.raises(BadRequest):
        outgoing.encoded("host", {})
