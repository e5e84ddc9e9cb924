"""Which calls are counted together, and what one that comes too often is told."""

import pytest

from hawker.api.contract.app import CREATE_APP, DELETE_APP, LIST_APPS
from hawker.api.contract.machine import CREATE_MACHINE, GET_MACHINE
from hawker.api.contract.machine_operation import START_MACHINE, STOP_MACHINE, WAIT_MACHINE
from hawker.api.contract.node import HEALTH, METRICS, NODE_INFO
from hawker.api.contract.private_network import DELETE_PEER, PUT_PEER
from hawker.api.route import AnyRoute, Rate, rate_of
from hawker.api.routes import ROUTES
from hawker.clock import ManualClock
from hawker.errors import RateLimited
from hawker.gateway.rate_limits import RateLimits

M1, M2 = {"app_name": "a", "machine_id": "1"}, {"app_name": "a", "machine_id": "2"}


class Told:
    def __init__(self) -> None:
        self.clock, self.refused = ManualClock(), list[tuple[str, str]]()
        self.limits = RateLimits(self.clock, lambda method, path: self.refused.append((method, path)))

    def passed(self, route: AnyRoute, params: dict[str, str], calls: int) -> int:
        """How many of so many calls at once pass."""
        before = len(self.refused)
        for _ in range(calls):
            try:
                self.limits.spend(route, params)
            except RateLimited as error:
                assert str(error) == "rate limit exceeded" and error.after_s is not None and error.after_s >= 1
        return calls - (len(self.refused) - before)


def test_each_action_on_each_machine_has_a_bucket_of_its_own() -> None:
    told = Told()
    assert told.passed(START_MACHINE, M1, 5) == 3
    assert told.passed(STOP_MACHINE, M1, 5) == 3
    assert told.passed(START_MACHINE, M2, 5) == 3
    told.clock.advance(1)
    assert told.passed(START_MACHINE, M1, 5) == 1


def test_creating_machines_is_counted_for_the_app() -> None:
    told = Told()
    assert told.passed(CREATE_MACHINE, {"app_name": "a"}, 5) == 3
    assert told.passed(CREATE_MACHINE, {"app_name": "b"}, 5) == 3


def test_a_machine_of_another_app_is_another_machine() -> None:
    """Or a token of one app could use up what the machines of another one are allowed."""
    told = Told()
    told.passed(START_MACHINE, {"app_name": "mine", "machine_id": "1"}, 5)
    assert told.passed(START_MACHINE, {"app_name": "theirs", "machine_id": "1"}, 5) == 3


@pytest.mark.parametrize("route", [GET_MACHINE, WAIT_MACHINE])
def test_a_machine_may_be_looked_at_more_often(route: AnyRoute) -> None:
    told = Told()
    assert told.passed(route, M1, 20) == 10
    told.clock.advance(1)
    assert told.passed(route, M1, 20) == 5


@pytest.mark.parametrize("route", [PUT_PEER, DELETE_PEER])
def test_peers_are_changed_once_a_second_by_each_organization(route: AnyRoute) -> None:
    told = Told()
    assert sum(told.passed(route, {"org_slug": "ada", "peer": f"p{number}"}, 1) for number in range(5)) == 3
    assert told.passed(route, {"org_slug": "eve", "peer": "p"}, 5) == 3


def test_apps_are_deleted_a_hundred_a_minute_all_together() -> None:
    told = Told()
    assert sum(told.passed(DELETE_APP, {"app_name": f"a{number}"}, 1) for number in range(150)) == 100
    told.clock.advance(60)
    assert sum(told.passed(DELETE_APP, {"app_name": f"b{number}"}, 1) for number in range(150)) == 100


@pytest.mark.parametrize("route", [HEALTH, NODE_INFO, METRICS, LIST_APPS, CREATE_APP])
def test_a_call_of_ours_or_one_that_names_nothing_is_not_counted(route: AnyRoute) -> None:
    assert Told().passed(route, {}, 1000) == 1000


def test_a_refusal_is_told_by_its_route() -> None:
    told = Told()
    told.passed(START_MACHINE, M1, 4)
    assert told.refused == [("POST", START_MACHINE.path)]


def test_a_name_of_any_length_takes_the_same_room() -> None:
    told = Told()
    told.passed(START_MACHINE, {"app_name": "a" * 100_000, "machine_id": "\ud800"}, 4)
    assert len(told.refused) == 1


def test_every_call_of_the_machines_api_has_a_rate_and_no_other_has_but_peers() -> None:
    assert {rate_of(route) is Rate.NONE for route in ROUTES if route.path.startswith("/v1/")} == {False}
    own = {route.name for route in ROUTES if not route.path.startswith("/v1/") and rate_of(route) is not Rate.NONE}
    assert own == {PUT_PEER.name, DELETE_PEER.name}


def test_a_refusal_says_when_the_call_may_come_again() -> None:
    told = Told()
    told.passed(START_MACHINE, M1, 3)
    with pytest.raises(RateLimited) as refused:
        told.limits.spend(START_MACHINE, M1)
    assert refused.value.after_s == 1
    told.passed(DELETE_APP, {"app_name": "a"}, 100)
    with pytest.raises(RateLimited) as refused:
        told.limits.spend(DELETE_APP, {"app_name": "a"})
    assert refused.value.after_s == 1


def test_the_root_token_is_spared_where_nobody_asked_for_limits() -> None:
    limits = RateLimits(ManualClock(), lambda method, path: None, spares_root=True)
    for _ in range(20):
        limits.spend(START_MACHINE, M1, root=True)
    with pytest.raises(RateLimited):
        for _ in range(4):
            limits.spend(START_MACHINE, M1, root=False)
