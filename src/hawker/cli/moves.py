"""Moves of machines and volumes, as the command line orders, follows and shows them."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, time, timedelta

import click
from click.core import ParameterSource

from hawker.api.caller import Caller
from hawker.api.contract.move import (
    GET_MOVE,
    LIST_MOVES,
    RECLAIM_MOVE,
    ListMovesQuery,
    Move,
    MoveParams,
    MoveRequest,
    TakeBackRequest,
)
from hawker.cli.exits import Failure
from hawker.cli.nodes import find_fleet_node
from hawker.cli.notation import Written
from hawker.cli.options import completed
from hawker.cli.output import fields, note, size, table
from hawker.clock import Clock, SystemClock
from hawker.errors import Conflict, Damaged, HawkerError, LeaseHeld, MoveUnderWay, Unavailable
from hawker.record.move import BUSY, SCHEDULED, MoveState

LOOKS_S = (0.05, 0.1, 0.25, 0.5)  # between two looks; the last one from then on
SAY_EVERY_S = 5.0
AGAIN_S = 2.0
"""Between two orders of a move that something else is in the way of."""

ENDED = frozenset({MoveState.DONE, MoveState.ABORTED})


def moment(text: str) -> datetime:
    """An ISO 8601 date and time, or a time of a day, which is the next such; in UTC unless told. Raises
    `ValueError`."""
    now = datetime.fromtimestamp(SystemClock().now(), UTC)
    try:
        if len(text) == len("02:00"):
            today = datetime.combine(now.date(), time.fromisoformat(text), UTC)
            return today if today > now else today + timedelta(days=1)
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time such as 2026-12-01T02:00Z or 02:00") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


to_option = click.option(
    "--to",
    "--to-node",
    "node",
    metavar="NODE",
    shell_complete=completed("nodes"),
    help="The node that is to have it; chosen unless told.",
)
region_option = click.option(
    "--region",
    metavar="REGION",
    shell_complete=completed("regions"),
    help="Choose a node of this region, not of its own.",
)
mode_option = click.option(
    "--mode", type=click.Choice(("auto", "warm", "cold")), default="auto", help="Copy beside the machine or while off."
)
limit_option = click.option("--limit", type=click.IntRange(min=0), metavar="MIB", help="Copy at most so many MiB/s.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say where it would go, and how much is copied.")
cold_start_option = click.option(
    "--cold-start", is_flag=True, help="Stop suspended machines for it: their memory is dropped, and they stay stopped."
)
at_option = click.option(
    "--at",
    type=Written(moment, "moment"),
    metavar="TIME",
    help="Begin then: 2026-12-01T02:00Z, or 02:00, the next one; in UTC.",
)
window_option = click.option(
    "--window",
    metavar="WINDOW",
    help="Begin in that window of a day or week, in UTC: '02:00-04:00', 'sun 02:00-04:00'.",
)
reclaim_option = click.option(
    "--reclaim",
    is_flag=True,
    help="Take it back from the node that it moved to, which is lost: for operators. --accept-loss says that what was"
    " written there is given up.",
)
accept_loss_option = click.option(
    "--accept-loss",
    is_flag=True,
    help="Zeros for what the disk cannot read of a volume; it is listed. Copies cold.",
)
now_option = click.option(
    "--now", is_flag=True, help="With --reclaim: the lost host is known to be off, so wait for nothing."
)
detach_option = click.option("--detach", is_flag=True, help="Return once the move has begun.")


async def wish_of(
    caller: Caller,
    node: str | None,
    region: str | None,
    mode: str,
    limit: int | None,
    *,
    dry_run: bool = False,
    cold_start: bool = False,
    at: datetime | None = None,
    window: str | None = None,
    accept_loss: bool = False,
) -> MoveRequest:
    """NODE may be the beginning of its id."""
    return MoveRequest(
        to=None if node is None else (await find_fleet_node(caller, node)).id,
        region=region,
        mode=mode,
        limit_mib_per_s=limit,
        dry_run=dry_run or None,
        cold_start=cold_start or None,
        at=at,
        window=window,
        accept_loss=accept_loss or None,
    )


class AbortedMove(Failure):
    """`move` says why."""

    def __init__(self, move: Move) -> None:
        super().__init__(f"the move was aborted, and {what(move)} is at node {move.node} as before: {move.reason}")
        self.move = move

    @property
    def is_lossy(self) -> bool:
        """Whether an order that accepts losses may succeed."""
        return self.move.code == Damaged.code

    @property
    def is_busy(self) -> bool:
        """Whether the same order may succeed later."""
        return self.move.reason.startswith(BUSY)


async def follow(caller: Caller, move: Move, clock: Clock, say: Callable[[str], None] = note) -> Move:
    """Until it has ended, unless it is to begin later; a line for each state, and every 5 s. A broker or node that is
    away is asked again. Raises `AbortedMove`."""
    if move.state == SCHEDULED:
        return move
    said, at, looks = ("", False), clock.monotonic(), iter(LOOKS_S)
    while move.state not in ENDED:
        if (move.state, move.paused) != said or clock.monotonic() - at >= SAY_EVERY_S:
            said, at = (move.state, move.paused), clock.monotonic()
            say(line(move))
        await clock.sleep(next(looks, LOOKS_S[-1]))
        try:
            move = await caller.call(GET_MOVE, params=MoveParams(move_id=move.id))
        except Unavailable as error:
            say(f"waiting: {error}")
        except HawkerError as error:
            if not error.retry:
                raise
    if move.state == MoveState.ABORTED and not move.reclaimed:
        raise AbortedMove(move)
    return move


Order = Callable[[bool], Awaitable[Move]]
"""Orders a move, with or without accepting losses; one that is under way already is what is answered."""


async def completed_move(
    caller: Caller, order: Order, clock: Clock, say: Callable[[str], None], *, accept_loss: bool, within_s: float
) -> Move:
    """What the disk cannot read is given up only by a second move, where losses are accepted: the first one may be
    warm, and the disk may read it then. What something else is in the way of is ordered again for `within_s`. Raises as
    `follow`."""
    try:
        return await _unhindered(caller, lambda: order(False), clock, say, within_s)
    except AbortedMove as error:
        if not accept_loss or not error.is_lossy:
            raise
        say(f"{what(error.move)}: {error.move.reason}; moved once more, and what cannot be read is lost")
    return await _unhindered(caller, lambda: order(True), clock, say, within_s)


async def _unhindered(
    caller: Caller, order: Callable[[], Awaitable[Move]], clock: Clock, say: Callable[[str], None], within_s: float
) -> Move:
    """From the first time on at which something was in the way: another move of the app, a lease, an operation."""
    until, told = float("inf"), ""
    while True:
        try:
            return await follow(caller, await order(), clock, say)
        except (AbortedMove, Conflict, LeaseHeld, MoveUnderWay) as error:
            now = clock.monotonic()
            until = min(until, now + within_s)
            if now >= until or (isinstance(error, AbortedMove) and not error.is_busy):
                raise
            why = str(error)
        if why != told:
            told = why
            say(f"something else is under way, and it is tried again for {until - now:.0f} s: {why}")
        await clock.sleep(AGAIN_S)


def check_reclaim(ctx: click.Context, *, reclaim: bool, with_it: tuple[str, ...]) -> None:
    """Raises `UsageError` for what is given beside `--reclaim` and says nothing there, or without it."""
    options = [each for each in ctx.command.params if isinstance(each, click.Option)]
    names = {each.name: next(opt for opt in each.opts if opt.startswith("--")) for each in options}
    given = {
        name
        for name in names
        if name and ctx.get_parameter_source(name) not in (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
    }
    if not reclaim:
        if "now" in given:
            raise click.UsageError("--now is for --reclaim")
        return
    stray = sorted(names[name] for name in given - {"reclaim", "accept_loss", "now", *with_it})
    if stray:
        raise click.UsageError(f"{', '.join(stray)}: not with --reclaim, which takes back what moved already")


async def reclaimed(caller: Caller, of: str, *, accept_loss: bool, now: bool) -> Move:
    """Begin to take back a machine or volume, by its id, from where its newest move brought it; the node that it came
    from does it. Raises `Failure` when no node that answers knows of one."""
    listed = (await caller.call(LIST_MOVES, query=ListMovesQuery())).moves
    able = (MoveState.GRANTED, MoveState.RECLAIMING, MoveState.DONE)
    found = [each for each in listed if of == (each.machine or each.volume) and each.state in able]
    if not found:
        raise Failure(f"no node that answers has moved {of} away: see `hawker moves list`; it is named by its id")
    body = TakeBackRequest(accept_loss=accept_loss or None, now=now or None)
    return await caller.call(
        RECLAIM_MOVE, params=MoveParams(move_id=max(found, key=lambda each: each.id).id), body=body
    )


def what(move: Move) -> str:
    return f"machine {move.machine}" if move.machine else f"volume {move.volume}"


def line(move: Move) -> str:
    """For example `copying 1.0 GiB of 4.0 GiB, 210.0 MiB/s, 15 s left`."""
    if move.paused:
        return f"{what(move)}: paused, {size(move.copied_bytes)} of {size(move.stored_bytes)} copied"
    if move.waits:
        return f"{what(move)}: {move.waits}"
    if move.state not in (MoveState.WARMING, MoveState.COPYING):
        return f"{what(move)}: {move.state}" + (f" at node {move.to}" if move.to else "")
    left = "" if move.eta_s is None else f", {move.eta_s:.0f} s left"
    how = "running, and copying" if move.state == MoveState.WARMING else "copying"
    return f"{what(move)}: {how} {size(move.copied_bytes)} of {size(move.stored_bytes)}, {size(move.rate)}/s{left}"


def about(move: Move) -> str:
    return fields(
        [
            ("move", move.id or "-"),
            ("app", move.app),
            ("machine", move.machine or "-"),
            ("volume", move.volume or "-"),
            ("from", move.node),
            ("to", move.to or "-"),
            ("mode", move.mode),
            ("state", f"{move.state}, paused" if move.paused else move.state),
            ("at", None if move.at is None else f"{move.at:%Y-%m-%d %H:%M} UTC"),
            ("window", move.window),
            ("back of", move.back_of),
            ("copied", f"{size(move.copied_bytes)} of {size(move.stored_bytes)}"),
            ("rate", f"{size(move.rate)}/s" if move.rate else "-"),
            ("left", None if move.eta_s is None else f"{move.eta_s:.0f} s"),
            ("away", "-" if move.away_ms is None else f"{move.away_ms / 1000:.1f} s"),
            ("waits", move.waits or None),
            ("lost", losses(move) or None),
            ("snapshots left", str(move.snapshots_left) if move.snapshots_left else None),
            ("reason", move.reason or "-"),
        ]
    )


def losses(move: Move) -> str:
    """What of its volume went as zeros; empty when nothing did."""
    lost = sum(count for _, count in move.lost)
    places = f"{len(move.lost)} place{'s' * (len(move.lost) != 1)}"
    return f"{size(lost)} in {places}: see `hawker volumes show {move.volume}`" if lost else ""


def loss_note(move: Move) -> str:
    """What a table says of it behind where it went."""
    return f"; LOST {losses(move)}; it is not used until that is accepted" if move.lost else ""


def moves_table(moves: Iterable[Move]) -> str:
    rows = [
        (each.id, each.app, each.machine or each.volume or "-", each.node, each.to or "-", each.state, _copied(each))
        for each in moves
    ]
    return table(("MOVE", "APP", "OF", "FROM", "TO", "STATE", "COPIED"), rows) if rows else "no moves"


def _copied(move: Move) -> str:
    if move.at is not None:
        return f"from {move.at:%Y-%m-%d %H:%M} UTC on"
    return f"{size(move.copied_bytes)} of {size(move.stored_bytes)}"
