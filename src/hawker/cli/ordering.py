"""Ordering machines and seeing them start: the app if nobody named one, the image, the order, the start; and orders of
several machines, and bids, as text.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.app import CREATE_APP, GET_APP, AppParams, CreateAppRequest
from hawker.api.contract.machine import CREATE_MACHINE, CreateMachineRequest, Machine, MachineParams
from hawker.api.contract.market import PLACE, BidPart, BidShown, PlaceAnswer, PlaceRequest
from hawker.cli import waiting
from hawker.cli.exits import ExitStatus, say_error
from hawker.cli.notation import LocalFile
from hawker.cli.options import DEFAULT_APP, gathered
from hawker.cli.output import Form, as_json, note, table
from hawker.cli.progress import pull_if_missing
from hawker.clock import Clock
from hawker.config import MachineConfig, MachineRestart
from hawker.deferred import deferred
from hawker.errors import NameTaken, NotFound, NotServed
from hawker.value_object import ValueObject

if TYPE_CHECKING:
    from hawker.cli import uploads
else:
    uploads = deferred("hawker.cli.uploads")  # most orders have no files


class ClientOrder(ValueObject, frozen=True, kw_only=True):
    """`app` None is the default app, which is made if it is missing; a named one must be there. `files` are those of
    this side; what the config names by digest is uploaded from them."""

    app: str | None
    request: CreateMachineRequest
    files: tuple[LocalFile, ...] = ()
    order_id: str | None = None
    """The same one is filled once; None: one is made up."""

    @property
    def app_name(self) -> str:
        return self.app or DEFAULT_APP


async def place(caller: Caller, order: ClientOrder) -> Machine:
    """The machine, created and perhaps not started yet. A failed order leaves nothing behind."""
    if order.app is None:
        await ensure_app(caller, order.app_name)
    else:
        await caller.call(GET_APP, params=AppParams(app_name=order.app_name))
    if order.files:
        await uploads.upload(caller, order.app_name, order.request.config, order.files)
    if order.request.config.image and await _is_for_one_node(caller, order):
        await pull_if_missing(caller, order.request.config.image, order.app_name)
    return await caller.call(
        CREATE_MACHINE,
        params=AppParams(app_name=order.app_name),
        body=order.request,
        idempotency_key=order.order_id,
    )


async def place_many(
    caller: Caller, order: ClientOrder, *, count: int, all_or_nothing: bool = False, dry_run: bool = False
) -> PlaceAnswer:
    """So many equal machines, created and perhaps not started yet; in a dry run, none."""
    if order.app is None and not dry_run:
        await ensure_app(caller, order.app_name)
    if order.files and not dry_run:
        await uploads.upload(caller, order.app_name, order.request.config, order.files)
    return await caller.call(
        PLACE,
        body=PlaceRequest(
            app=order.app_name,
            machine=order.request,
            count=count,
            all_or_nothing=all_or_nothing or None,
            dry_run=dry_run or None,
        ),
        idempotency_key=order.order_id,
    )


async def _is_for_one_node(caller: Caller, order: ClientOrder) -> bool:
    """Where several bid, whoever wins pulls the image; pulling it here would be for nothing."""
    try:
        return len((await place_many(caller, order, count=1, dry_run=True)).bids) < 2
    except NotServed:
        return True


async def start(caller: Caller, order: ClientOrder, clock: Clock, within_s: float) -> Machine:
    """The machine once it runs. Raises `Failure` saying why it does not."""
    machine = await place(caller, order)
    params = MachineParams(app_name=order.app_name, machine_id=machine.id)
    return await waiting.started(caller, params, machine.version, clock, within_s, tell=note)


async def ensure_app(caller: Caller, name: str) -> None:
    """Make it, unless it is there."""
    try:
        await caller.call(GET_APP, params=AppParams(app_name=name))
    except NotFound:
        try:
            await caller.call(CREATE_APP, body=CreateAppRequest(name=name))
        except NameTaken:
            return  # by someone who did the same at the same moment


def one_off(config: MachineConfig) -> MachineConfig:
    """A machine that someone waits for, or that goes when it ends, is not run again unless that was asked for."""
    return config if config.restart else msgspec.structs.replace(config, restart=MachineRestart(policy="no"))


class Count(ValueObject, frozen=True, kw_only=True):
    """`count` None is one machine, ordered as any client does."""

    count: int | None
    all_or_nothing: bool
    """Fewer than `count` are none."""


count_options = gathered(
    Count,
    "count",
    (
        click.option(
            "--count",
            metavar="N",
            type=click.IntRange(min=1),
            help="The number of machines; as many as possible are filled.",
        ),
        click.option("--all-or-nothing", is_flag=True, help="With --count: fill all machines or none."),
    ),
)


async def filled(caller: Caller, order: ClientOrder, count: Count, within_s: float | None, clock: Clock) -> PlaceAnswer:
    """The answer, once those that were filled have started; None does not wait."""
    answer = await place_many(caller, order, count=count.count or 1, all_or_nothing=count.all_or_nothing)
    if within_s is not None:
        for machine in answer.machines:
            params = MachineParams(app_name=order.app_name, machine_id=machine.id)
            await waiting.started(caller, params, machine.version, clock, within_s, tell=note)
    return answer


def show_placed(answer: PlaceAnswer, form: Form) -> int:
    """The exit status: that of a refusal when not all were filled."""
    click.echo(as_json(answer) if form is Form.JSON else "\n".join(map(_id, answer.machines)))
    return said_of_the_rest(answer)


def said_of_the_rest(answer: PlaceAnswer) -> int:
    if answer.refusal is None:
        return ExitStatus.OK
    say_error(f"{answer.filled} of {answer.asked} filled: {answer.refusal.error}")
    return ExitStatus.NO_ROOM


def bids_table(answer: PlaceAnswer) -> str:
    """Every bid, its parts below it, and why it lost."""
    rows = [row for bid in answer.bids for row in _rows(bid)]
    return table(("NODE", "REGION", "VERDICT", "SCORE", "FITS", "WHY"), rows, prose=("WHY",))


def _rows(bid: BidShown) -> Iterator[tuple[object, ...]]:
    score = None if bid.score is None else f"{bid.score:.3f}"
    verdict = bid.verdict.value.replace("_", " ")
    yield bid.node, bid.region, verdict, score, bid.fits if bid.score is not None else None, bid.why
    for part in bid.parts:
        yield f"  {part.name}", "", "", f"{part.points:.3f}", "", _told(part)


def _told(part: BidPart) -> str:
    match part.name:
        case "image":
            value = f"{part.value:.1f} MiB missing"
        case "spread":
            value = f"{part.value:.0f} of the app here"
        case _:
            value = f"{part.value:.1%} used afterwards"
    return f"{value}, desirability {part.utility:.2f}, weight {part.weight:g}"


def _id(machine: Machine) -> str:
    return machine.id
