"""Ordering a machine and seeing it start: the app if nobody named one, the image, the order, the start."""

import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.app import CREATE_APP, GET_APP, AppParams, CreateAppRequest
from hawker.api.contract.machine import CREATE_MACHINE, CreateMachineRequest, Machine, MachineParams
from hawker.api.contract.market import PLACE, PlaceAnswer, PlaceRequest
from hawker.cli import waiting
from hawker.cli.notation import LocalFile
from hawker.cli.options import DEFAULT_APP
from hawker.cli.progress import pull_if_missing
from hawker.cli.uploads import upload
from hawker.clock import Clock
from hawker.config import MachineConfig, MachineRestart
from hawker.errors import NameTaken, NotFound, NotServed
from hawker.value_object import ValueObject


class ClientOrder(ValueObject, frozen=True, kw_only=True):
    """`app` None is the default app, which is made if it is missing; a named one must be there. `files` are those of
    this side; what the config names by digest is uploaded from them."""

    app: str | None
    request: CreateMachineRequest
    files: tuple[LocalFile, ...] = ()
    order_id: str | None = None

    @property
    def app_name(self) -> str:
        return self.app or DEFAULT_APP


async def place(caller: Caller, order: ClientOrder) -> Machine:
    """The machine, created and perhaps not started yet. A failed order leaves nothing behind."""
    if order.app is None:
        await ensure_app(caller, order.app_name)
    else:
        await caller.call(GET_APP, params=AppParams(app_name=order.app_name))
    await upload(caller, order.app_name, order.request.config, order.files)
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
    if not dry_run:
        await upload(caller, order.app_name, order.request.config, order.files)
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
    return await waiting.started(caller, params, machine.version, clock, within_s)


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
