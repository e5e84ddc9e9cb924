"""Replays that are kept: for whom, for how long, how many."""

import pytest
from msgspec.structs import replace

from hawker.config.machine import ReplayCache
from hawker.edge import replay_cache
from hawker.edge.replay import CacheOrder, Replay
from hawker.edge.replay_cache import ReplayQuestion, ReplayRoutes, asked_for
from hawker.ids import AppName, MachineId

SHOP, ORIGIN = AppName("shop"), MachineId("m1")
DOCS = Replay(app=AppName("docs"), cache=CacheOrder(prefix="/docs/", ttl_s=60))


def asked(path: str, host: str = "shop.example", app: AppName = SHOP) -> ReplayQuestion:
    return ReplayQuestion(app, host, path)


def test_a_replay_serves_what_is_below_its_prefix_until_its_time_for_its_own_app_and_host() -> None:
    routes = ReplayRoutes()
    assert routes.keep(asked("/docs/1"), DOCS, ORIGIN, 0.0)
    found = routes.find(asked("/docs/2"), 59.9)
    assert found is not None and found.order is DOCS and found.origin == ORIGIN
    assert routes.find(asked("/doc"), 1.0) is None and routes.find(asked("/docs/2", "other.example"), 1.0) is None
    assert routes.find(asked("/docs/2", app=AppName("bank")), 1.0) is None
    assert routes.find(asked("/docs/2"), 60.0) is None and len(routes) == 0


def test_the_longest_prefix_counts() -> None:
    routes = ReplayRoutes()
    inner = replace(DOCS, app=AppName("inner"), cache=CacheOrder(prefix="/docs/in/"))
    routes.keep(asked("/docs/x"), DOCS, ORIGIN, 0.0)
    routes.keep(asked("/docs/in/x"), inner, ORIGIN, 0.0)
    found = routes.find(asked("/docs/in/y"), 1.0)
    assert found is not None and found.order is inner


def test_an_order_not_for_the_request_or_for_it_alone_is_not_kept() -> None:
    routes = ReplayRoutes()
    assert not routes.keep(asked("/other"), DOCS, ORIGIN, 0.0)
    foreign = replace(DOCS, cache=CacheOrder(host="bank.example", prefix="/"))
    assert not routes.keep(asked("/docs/1"), foreign, ORIGIN, 0.0)
    assert not routes.keep(asked("/docs/1"), replace(DOCS, state="x"), ORIGIN, 0.0)
    assert not routes.keep(asked("/docs/1"), replace(DOCS, cache=None), ORIGIN, 0.0)


def test_a_request_can_have_what_is_kept_for_it_forgotten() -> None:
    routes = ReplayRoutes()
    routes.keep(asked("/docs/1"), DOCS, ORIGIN, 0.0)
    assert routes.forget(asked("/docs/9")) and not routes.forget(asked("/docs/9"))


def test_a_rule_of_the_config_keeps_replays_by_cookie_or_field() -> None:
    rules = (ReplayCache(path_prefix="/*", ttl_seconds=1, type="cookie", name="sid"),)
    order, routes = Replay(instance=MachineId("m2")), ReplayRoutes()

    def of(cookie: bytes) -> ReplayQuestion:
        return asked_for(SHOP, "shop.example", b"/a?b", [(b"cookie", b"x=1; " + cookie)], rules)

    assert not routes.keep(of(b"y=2"), order, ORIGIN, 0.0), "a request without a session has none"
    assert routes.keep(of(b"sid=one"), order, ORIGIN, 0.0)
    assert routes.find(of(b"sid=one"), 9.0) is not None, "no entry is kept for less than 10 s"
    assert routes.find(of(b"sid=two"), 1.0) is None
    by_field = (ReplayCache(path_prefix="/", type="header", name="X-User"),)
    assert asked_for(SHOP, "h", b"/a", [(b"x-user", b"7")], by_field).session == "7"


def test_entries_and_prefixes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_cache, "MAX_ENTRIES", 20)
    monkeypatch.setattr(replay_cache, "MAX_PREFIXES", 10)
    routes = ReplayRoutes()
    for number in range(30):
        order = replace(DOCS, cache=CacheOrder(prefix=f"/{number:02}/"))
        assert routes.keep(asked(f"/{number:02}/"), order, ORIGIN, 0.0) is (number < 10)
    for number in range(30):
        routes.keep(asked("/docs/1", f"{number}.example"), DOCS, ORIGIN, 0.0)
    assert len(routes) == 20 and routes.find(asked("/00/x"), 1.0) is None
    assert routes.find(asked("/docs/1", "29.example"), 1.0) is not None
