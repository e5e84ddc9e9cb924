"""The `hawker moves` group: what moves between nodes, how fast, and how a move is ended."""

import re

import click

from hawker.api.caller import Caller
from hawker.api.contract.move import (
    CANCEL_MOVE,
    GET_MOVE,
    LIMIT_MOVE,
    LIST_MOVES,
    PAUSE_MOVE,
    RESUME_MOVE,
    LimitMoveRequest,
    ListMovesQuery,
    Move,
    MoveList,
    MoveParams,
)
from hawker.cli import moves
from hawker.cli.connect import talk
from hawker.cli.exits import Failure
from hawker.cli.nodes import find_fleet_node
from hawker.cli.options import completed
from hawker.cli.output import Form, output_option, show
from hawker.record.move import SCHEDULED, MoveState

_STATES = (SCHEDULED, *(state.value for state in MoveState))
_WHOLE_ID = re.compile("[0-9a-f]{8}")


@click.group("moves", no_args_is_help=True)
def command() -> None:
    """Show, pause, limit and cancel moves between nodes."""


@command.command("list")
@click.option("-a", "--app", metavar="APP", shell_complete=completed("apps"), help="Only those of this app.")
@click.option(
    "--node",
    metavar="NODE",
    shell_complete=completed("nodes"),
    help="Only those from or to this node; one that was forgotten by its whole id.",
)
@click.option("--state", type=click.Choice(_STATES), metavar="STATE", help="Only those in this state.")
@output_option
@click.pass_context
def list_(ctx: click.Context, app: str | None, node: str | None, state: str | None, form: Form) -> None:
    """List moves, the newest first."""

    async def ask(caller: Caller) -> MoveList:
        whose = node if node is None or _WHOLE_ID.fullmatch(node) else (await find_fleet_node(caller, node)).id
        return await caller.call(LIST_MOVES, query=ListMovesQuery(app=app, node=whose, state=state))

    show(talk(ctx, ask).moves, form, moves.moves_table)


@command.command("show")
@click.argument("move", metavar="MOVE")
@output_option
@click.pass_context
def show_(ctx: click.Context, move: str, form: Form) -> None:
    """Show MOVE: how far it is, and why it ended if it was aborted."""

    async def ask(caller: Caller) -> Move:
        return await caller.call(GET_MOVE, params=MoveParams(move_id=move))

    show(talk(ctx, ask), form, moves.about)


@command.command("cancel")
@click.argument("move", metavar="MOVE")
@output_option
@click.pass_context
def cancel(ctx: click.Context, move: str, form: Form) -> None:
    """End MOVE: the machine runs again where it was. Once the destination owns it, move it back instead."""

    async def ask(caller: Caller) -> Move:
        return await caller.call(CANCEL_MOVE, params=MoveParams(move_id=move))

    ended = talk(ctx, ask)
    if ended.state == MoveState.DONE:
        raise Failure(f"the move is done, so it cannot be cancelled: it is at node {ended.to}, move it back instead")
    show(ended, form, moves.about)


@command.command("pause")
@click.argument("move", metavar="MOVE")
@output_option
@click.pass_context
def pause(ctx: click.Context, move: str, form: Form) -> None:
    """Copy nothing more of MOVE for now. A pause ends by itself after an hour; a machine that is off cannot wait."""

    async def ask(caller: Caller) -> Move:
        return await caller.call(PAUSE_MOVE, params=MoveParams(move_id=move))

    show(talk(ctx, ask), form, moves.about)


@command.command("resume")
@click.argument("move", metavar="MOVE")
@output_option
@click.pass_context
def resume(ctx: click.Context, move: str, form: Form) -> None:
    """Go on with MOVE, which was paused."""

    async def ask(caller: Caller) -> Move:
        return await caller.call(RESUME_MOVE, params=MoveParams(move_id=move))

    show(talk(ctx, ask), form, moves.about)


@command.command("limit")
@click.argument("move", metavar="MOVE")
@click.argument("mib", metavar="MIB", type=click.IntRange(0, 1 << 20))
@output_option
@click.pass_context
def limit(ctx: click.Context, move: str, mib: int, form: Form) -> None:
    """Change how fast MOVE copies, while it does.

    At most MIB MiB/s from now on; 0 is no limit, but 100 beside a machine that runs.
    """

    async def ask(caller: Caller) -> Move:
        return await caller.call(
            LIMIT_MOVE, params=MoveParams(move_id=move), body=LimitMoveRequest(limit_mib_per_s=mib)
        )

    show(talk(ctx, ask), form, moves.about)
