"""`hawker machine move`: a machine goes to another node with its volume, and is the same machine there."""

from datetime import datetime

import click

from hawker.api.caller import Caller
from hawker.api.contract.move import MOVE_MACHINE, Move
from hawker.cli import moves
from hawker.cli.connect import talk
from hawker.cli.machines import find_machine
from hawker.cli.options import app_option, machine_argument
from hawker.cli.output import Form, output_option, show
from hawker.clock import SystemClock

_HELP = """Move MACHINE with its volume, and the root filesystem that it keeps, to another node. It keeps its id, name,
address and volume. It is off only while the blocks that it wrote during the copy are copied once more, and with `--mode
cold` during the whole copy.

The nodes do the work: if this command is interrupted, the move goes on; `hawker moves list` shows it.

\b
Examples:
  hawker machine move pg --to 3f2a
  hawker machine move pg --limit 50
  hawker machine move pg --window 'sun 02:00-04:00'
  hawker machine move pg --dry-run
  hawker machine move 77424481f6cc77 --reclaim  # its new node is lost
"""


@click.command("move", help=_HELP)
@machine_argument
@app_option
@moves.to_option
@moves.region_option
@moves.mode_option
@moves.limit_option
@moves.cold_start_option
@moves.at_option
@moves.window_option
@moves.accept_loss_option
@moves.dry_run_option
@moves.reclaim_option
@moves.now_option
@moves.detach_option
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    machine: str,
    app: str | None,
    node: str | None,
    region: str | None,
    mode: str,
    limit: int | None,
    cold_start: bool,
    at: datetime | None,
    window: str | None,
    accept_loss: bool,
    dry_run: bool,
    reclaim: bool,
    now: bool,
    detach: bool,
    form: Form,
) -> None:
    moves.check_reclaim(ctx, reclaim=reclaim, with_it=("app", "detach", "form"))

    async def take_back(caller: Caller) -> Move:
        made = await moves.reclaimed(caller, machine, accept_loss=accept_loss, now=now)
        return made if detach else await moves.follow(caller, made, SystemClock())

    async def move(caller: Caller) -> Move:
        wish = await moves.wish_of(
            caller,
            node,
            region,
            mode,
            limit,
            dry_run=dry_run,
            cold_start=cold_start,
            accept_loss=accept_loss,
            at=at,
            window=window,
        )
        owned = await find_machine(caller, machine, app)
        made = await caller.call(MOVE_MACHINE, params=owned.params, body=wish)
        return made if detach or dry_run else await moves.follow(caller, made, SystemClock())

    show(talk(ctx, take_back if reclaim else move), form, moves.about)
