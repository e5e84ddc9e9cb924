"""Why nobody filled an order, in one error: what its caller can act on first, and what was lacking last. Pure."""

from collections.abc import Iterable, Sequence

from hawker.api.contract.market import Decline, DeclineKind
from hawker.api.failure import error_of
from hawker.config import MachineConfig
from hawker.errors import (
    DeadlineExceeded,
    Fault,
    Forbidden,
    HawkerError,
    NoRoom,
    NoRoomAtVolume,
    OrderCancelled,
    Unauthorized,
    Unavailable,
)
from hawker.market.survey import Surveyed
from hawker.node import shortfall_text

_PASSING = (NoRoom, Unavailable, OrderCancelled, Fault, DeadlineExceeded, Unauthorized, Forbidden)
"""What says something of one node, and nothing of the order."""


def no_such_region(wanted: str, nearest: str | None) -> NoRoom:
    text = f"could not find a candidate host: no host in region '{wanted}'"
    if nearest is not None:
        text += f", the nearest is '{nearest}'"
    return NoRoom(text, scope="region", shortfall={"hosts": 1}, nearest=nearest)


def refusal(
    regions: Sequence[str],
    surveys: Sequence[Surveyed],
    errors: Sequence[HawkerError],
    config: MachineConfig,
    nearest: str | None,
) -> HawkerError:
    """`errors` are those of nodes that were sent the order."""
    telling = [error for error in errors if not isinstance(error, _PASSING)]
    if telling:
        return telling[0]
    declines = [bid.decline for survey in surveys for bid in survey.heard if bid.decline is not None]
    problems = [each for each in declines if each.problem is not None]
    if problems and len(problems) == len(declines) and not errors:
        first = min(problems, key=lambda each: (each.kind is not DeclineKind.VOLUME, each.http_status))
        assert first.problem is not None
        return error_of(first.http_status, first.problem)
    if not declines and not errors and _unreachable(surveys):
        return Unavailable(f"{_named(regions)} cannot be reached: none of its hosts answers")
    if errors and not declines and not any(isinstance(error, NoRoom) for error in errors):
        return Unavailable(f"no host in {_named(regions)} took the order, and none has it: {errors[-1]}")
    return _no_room(
        regions, surveys, declines, [error for error in errors if isinstance(error, NoRoom)], config, nearest
    )


def _unreachable(surveys: Iterable[Surveyed]) -> bool:
    """Whether there are hosts that would have been asked, and none could be."""
    silent = any(isinstance(bid, str) for survey in surveys for bid in survey.bids.values())
    down = [reason for survey in surveys for reason in survey.passed_over.values()]
    return silent or (bool(down) and all(reason == "the node cannot be reached" for reason in down))


def _no_room(
    regions: Sequence[str],
    surveys: Sequence[Surveyed],
    declines: Sequence[Decline],
    refused: Sequence[NoRoom],
    config: MachineConfig,
    nearest: str | None,
) -> HawkerError:
    mount = config.mounts[0] if config.mounts else None
    shortfalls = [each.shortfall for each in declines if each.shortfall] + [each.shortfall for each in refused]
    least = min(shortfalls, key=lambda each: (len(each), sum(each.values())), default={"hosts": 1})
    if mount is not None and mount.volume and any(each.kind is DeclineKind.NO_ROOM for each in declines):
        return NoRoomAtVolume(f"insufficient resources to create new machine with existing volume id '{mount.volume}'")
    if least == {"hosts": 1}:
        reasons = [each.reason for each in declines]
        reasons += [reason for survey in surveys for reason in survey.passed_over.values()]
        why = f" ({reasons[0]})" if reasons else ""
        text = f"could not find a candidate host: no host in {_named(regions)} is as the order wants it{why}"
    else:
        text = (
            f"could not find a candidate host: no host in {_named(regions)} has room, short of {shortfall_text(least)}"
        )
    if nearest is not None:
        text += f"; region '{nearest}' has"
    if silent := sum(isinstance(bid, str) for survey in surveys for bid in survey.bids.values()):
        text += f"; {'one' if silent == 1 else silent} of its hosts did not answer, try again"
    return NoRoom(text, scope="region", shortfall=least, nearest=nearest)


def _named(regions: Sequence[str]) -> str:
    named = ", ".join(f"'{region}'" for region in regions)
    return f"region {named}" if len(regions) == 1 else f"regions {named}"
