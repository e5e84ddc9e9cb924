from typing import Any

import pytest

from hawker.api.contract.market import Bid, Decline, DeclineKind
from hawker.api.failure import problem_of
from hawker.errors import (
    BadRequest,
    Fault,
    HawkerError,
    NoRoom,
    NoRoomAtVolume,
    NotFound,
    Unavailable,
    Unprocessable,
)
from hawker.market.refusal import no_such_region, refusal
from hawker.market.survey import Surveyed
from hawker.sim.node.sim_worker import config_of

FULL = Decline(kind=DeclineKind.NO_ROOM, reason="short of 5 cpus", shortfall={"cpus": 5})
FULLER = Decline(kind=DeclineKind.NO_ROOM, reason="short", shortfall={"cpus": 7, "memory_mb": 1})
CLOSED = Decline(kind=DeclineKind.CLOSED, reason="the node is cordoned")


def because(error: HawkerError, kind: DeclineKind = DeclineKind.UNFIT) -> Decline:
    return Decline(kind=kind, reason=str(error), http_status=error.status, problem=problem_of(error))


def told(*declines: Decline | str, errors: tuple[HawkerError, ...] = (), **config: Any) -> HawkerError:
    bids: dict[str, Bid | str] = {
        str(number): each if isinstance(each, str) else Bid(fits=0, decline=each)
        for number, each in enumerate(declines)
    }
    survey = Surveyed(nodes=(), passed_over={}, bids=bids, ranked=())
    return refusal(["mad"], [survey], errors, config_of(**config), "cdg")


def test_the_least_that_is_missing_is_told_with_the_nearest_that_could() -> None:
    error = told(FULLER, FULL)
    assert isinstance(error, NoRoom) and (error.shortfall, error.nearest) == ({"cpus": 5}, "cdg")
    assert str(error) == (
        "could not find a candidate host: no host in region 'mad' has room, short of 5 cpus; region 'cdg' has"
    )


@pytest.mark.parametrize(
    ("declines", "errors", "kind", "text"),
    [
        ((because(Unprocessable("config.x")), because(Unprocessable("config.x"))), (), Unprocessable, "config.x"),
        ((because(Unprocessable("config.x")), FULL), (), NoRoom, "short of 5 cpus"),
        ((because(NotFound("no volume"), DeclineKind.VOLUME),), (), NotFound, "no volume"),
        ((FULL,), (BadRequest("no such image"),), BadRequest, "no such image"),
        (("no answer in time",), (), Unavailable, "region 'mad' cannot be reached"),
        ((), (Fault("lost"),), Unavailable, "took the order, and none has it: lost"),
        ((), (NoRoom("x", scope="host", shortfall={"cpus": 1}),), NoRoom, "short of 1 cpus"),
        ((CLOSED,), (), NoRoom, r"as the order wants it \(the node is cordoned\)"),
        ((), (), NoRoom, "as the order wants it"),
        ((CLOSED, "no answer in time"), (), NoRoom, "; region 'cdg' has; one of its hosts did not answer, try again"),
        ((FULL, "no answer", "refused"), (), NoRoom, "; 2 of its hosts did not answer, try again"),
    ],
)
def test_a_reason_the_caller_can_act_on_comes_first(
    declines: tuple[Decline | str, ...], errors: tuple[HawkerError, ...], kind: type[HawkerError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        raise told(*declines, errors=errors)


def test_a_full_node_with_the_volume_has_an_error_of_its_own() -> None:
    mounts = [{"volume": "vol_0000000000000000", "path": "/data"}]
    assert isinstance(told(FULL, mounts=mounts), NoRoomAtVolume)


def test_a_region_that_there_is_not() -> None:
    error = no_such_region("nrt", "mad")
    assert (str(error), error.nearest) == (
        "could not find a candidate host: no host in region 'nrt', the nearest is 'mad'",
        "mad",
    )
    assert no_such_region("nrt", None).nearest is None
