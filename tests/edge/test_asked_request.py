"""A request that nobody sends: its head, and what is said of it."""

import pytest

from hawker.edge.asked_request import head_of, order_of
from hawker.edge.refusal import Code, ProxyError
from hawker.ids import AppName
from hawker.route_question import AskedRequest, AskRoute


def asked(host: str, *fields: tuple[str, str], method: str = "") -> AskRoute:
    request = AskedRequest(method=method, target="/x?y", fields=fields)
    return AskRoute(call=1, app=AppName("shop"), host=host, port=80, tls=False, request=request)


def test_head_is_what_a_client_of_the_url_would_write() -> None:
    head = head_of(asked("shop.localhost", ("X-A", "b")))
    assert (head.method, head.target, head.host, head.fields) == (b"GET", b"/x?y", "shop.localhost", ((b"x-a", b"b"),))
    assert head_of(asked("::1", method="PUT")).authority == b"[::1]"
    assert head_of(asked("shop.localhost", ("host", "Blog.localhost:81"))).host == "blog.localhost"


def test_order_is_read_as_a_machines_is() -> None:
    assert order_of(AskedRequest(replay="region=ams;state=x")).regions == ("ams",)
    with pytest.raises(ProxyError) as refused:
        order_of(AskedRequest(replay="region=ams;region=iad"))
    assert refused.value.code is Code.PA03
