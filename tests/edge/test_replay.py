"""The grammar of fly-replay: what is understood, and that nothing else is."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.edge.head import parse_request, parse_response
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.replay import (
    MAX_JSON_BYTES,
    CacheOrder,
    Fallback,
    Replay,
    is_replay,
    read_replay,
    replay_failed,
    replay_source,
    wants_body,
)
from hawker.ids import AppName, MachineId


def ordered(value: str, *fields: str) -> Replay:
    said = "".join(f"{field}\r\n" for field in (f"fly-replay: {value}", *fields))
    return read_replay(parse_response(f"HTTP/1.1 200 OK\r\n{said}\r\n".encode("latin-1"), b"GET"), b"")


def in_json(said: object) -> Replay:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.fly.replay+json; charset=utf-8\r\n\r\n"
    answer = parse_response(head, b"GET")
    assert is_replay(answer) and wants_body(answer)
    return read_replay(answer, said if isinstance(said, bytes) else msgspec.json.encode(said))


def test_all_keys_are_read() -> None:
    text = 'region="ams, FRA";instance=m1;prefer_instance=m2;app=bank;state="a b=c";elsewhere=true'
    assert ordered(f"{text};timeout=800ms;fallback=prefer_self;") == Replay(
        regions=("ams", "fra"),
        instance=MachineId("m1"),
        prefer=MachineId("m2"),
        app=AppName("bank"),
        state="a b=c",
        elsewhere=True,
        timeout_s=0.8,
        fallback=Fallback.PREFER_SELF,
    )
    assert ordered("app=bank; state=x==") == Replay(app=AppName("bank"), state="x==")
    assert ordered("region=ams,fra").regions == ("ams", "fra")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "app",
        "app=",
        "state=x",
        "elsewhere=false",
        "elsewhere=yes",
        "app=a;app=b",
        "app=a,instance=b",
        "app=a b",
        "app=../x",
        "what=x;app=a",
        "app=a;timeout=10",
        "app=a;timeout=0s",
        "app=a;timeout=-1s",
        "app=a;timeout=9999999m",
        "app=a;timeout=1e3s",
        "app=a;fallback=other",
        'app=a;state="b',
        'app=a;state="b"c',
        'app=a;state="b;c"',
        "app=a;state=" + "x" * 1025,
        "app=a;state=\xe9",
        "app=a;state=b\tc",
        "region=" + ",".join("a" for _ in range(33)),
        "app=a" + " " * 5000 + ";",
        "app=" + " " * 4000 + '"',  # minutes, were it tried in every way
        "app=" + " " * 2000 + "a" + " " * 2000 + '"',
    ],
)
def test_a_header_that_is_no_order_is_refused_and_told_to_the_app(text: str) -> None:
    with pytest.raises(ProxyError) as refused:
        ordered(text)
    assert refused.value.code is Code.PA03 and "fly-replay" in refused.value.known
    assert "fly-replay" not in refused.value.told


def test_two_orders_are_none() -> None:
    with pytest.raises(ProxyError):
        ordered("app=a", "fly-replay: app=b")


@given(st.text(alphabet=st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=80))
def test_any_text_is_an_order_or_refused(text: str) -> None:
    try:
        found = ordered(text)
    except ProxyError:
        return
    line = replay_source(MachineId("m"), "ams", 1.0, found.state) + replay_failed(
        found, found.app or AppName("a"), MachineId("m"), "timeout", 1.5
    )
    assert line.count(b"\r\n") == 2 and line.count(b"\n") == line.count(b"\r") == 2


def test_an_order_in_a_body_may_change_path_and_fields() -> None:
    order = in_json(
        {
            "app": "bank",
            "transform": {
                "path": "/b?c=d",
                "delete_headers": ["Cookie"],
                "set_headers": [{"name": "X-User", "value": "7"}, {"name": "X-Old", "value": "new"}],
            },
            "cache": {"prefix": "/a/*", "ttl": 60, "allow_bypass": True},
        }
    )
    assert order.transform is not None and order.cache == CacheOrder(prefix="/a/", ttl_s=60, bypass=True)
    head = parse_request(b"GET /a HTTP/1.1\r\nHost: a\r\nCookie: x\r\nX-Old: old\r\nAccept: y\r\n\r\n")
    changed = order.transform.apply(head)
    assert changed.target == b"/b?c=d"
    assert changed.fields == ((b"accept", b"y"), (b"x-user", b"7"), (b"x-old", b"new"))
    assert in_json({"app": "a", "cache": {"invalidate": True}}).cache == CacheOrder(forget=True)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"[]",
        b"{",
        b'{"app": "a"',
        b'{"app": 1}',
        b'{"app": "a", "more": 1}',
        b"\xff" * 10,
        b"[" * MAX_JSON_BYTES,
        {"app": "a", "transform": {"path": "no"}},
        {"app": "a", "transform": {"path": "/a b"}},
        {"app": "a", "transform": {"path": "/a\r\nHost: b"}},
        {"app": "a", "transform": {"path": "/a#b"}},
        {"app": "a", "transform": {"set_headers": [{"name": "Host", "value": "b"}]}},
        {"app": "a", "transform": {"set_headers": [{"name": "Content-Length", "value": "5"}]}},
        {"app": "a", "transform": {"set_headers": [{"name": "transfer-encoding", "value": "chunked"}]}},
        {"app": "a", "transform": {"set_headers": [{"name": "Fly-Client-IP", "value": "6.6.6.6"}]}},
        {"app": "a", "transform": {"set_headers": [{"name": "fly-replay-src", "value": "x"}]}},
        {"app": "a", "transform": {"set_headers": [{"name": "X-Forwarded-For", "value": "x"}]}},
        {"app": "a", "transform": {"set_headers": [{"name": "X", "value": "a\r\nb: c"}]}},
        {"app": "a", "transform": {"set_headers": [{"name": "X_Y", "value": "a"}]}},
        {"app": "a", "transform": {"set_headers": [{"name": "X:", "value": "a"}]}},
        {"app": "a", "transform": {"delete_headers": ["host"]}},
        {"app": "a", "transform": {"delete_headers": ["x"] * 65}},
        {"app": "a", "cache": {}},
        {"app": "a", "cache": {"prefix": "/a*b*"}},
        {"app": "a", "cache": {"prefix": "/a/*", "ttl": 9}},
        {"app": "a", "cache": {"prefix": "/a/*", "ttl": 86401}},
        {"app": "a", "cache": {"prefix": "/" + "a" * 2000 + "*"}},
    ],
)
def test_a_body_that_is_no_order_is_refused(said: object) -> None:
    with pytest.raises(ProxyError) as refused:
        in_json(said)
    assert refused.value.code is Code.PA03


def test_fields_beside_the_order_say_what_may_be_kept() -> None:
    beside = ("fly-replay-cache: shop.example/docs/*", "fly-replay-cache-ttl-secs: 60")
    order = ordered("app=a", *beside, "fly-replay-cache-allow-bypass: yes")
    assert order.cache == CacheOrder(host="shop.example", prefix="/docs/", ttl_s=60, bypass=True) and order.cacheable
    assert not ordered("app=a;state=b", *beside).cacheable and not ordered("app=a;timeout=1s", *beside).cacheable


@pytest.mark.parametrize("ttl", ["soon", "9", "86401", "9" * 5000])
def test_lifetime_beside_an_order_that_is_none_is_refused(ttl: str) -> None:
    with pytest.raises(ProxyError):
        ordered("app=a", "fly-replay-cache: /*", f"fly-replay-cache-ttl-secs: {ttl}")


def test_the_fields_of_a_replayed_request_say_who_had_it_and_what_became_of_it() -> None:
    assert replay_source(MachineId("m1"), "ams", 1.5, "x=y") == (
        b"fly-replay-src: instance=m1;region=ams;t=1500000;state=x=y\r\n"
    )
    order = Replay(regions=("ams",), instance=MachineId("m2"))
    assert replay_failed(order, AppName("bank"), MachineId("m1"), "timeout", 0.25) == (
        b"fly-replay-failed: instance=m2;app=bank;region=ams;replay_source=m1;reason=timeout;elapsed_ms=250\r\n"
    )
