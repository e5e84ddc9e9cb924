"""The operations on machines as single transactions: check, change the record, accept the run that does the rest.

What is acknowledged is on disk when these return. Nothing here touches the host; flows do.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from hawker.clock import Clock
from hawker.config import MachineConfig, stop_config
from hawker.errors import Conflict, HawkerError, NotFound, NotServed, Unprocessable
from hawker.failpoint import reach
from hawker.fsm import journal
from hawker.fsm.contract import Flow, I, WhenBusy
from hawker.fsm.run import State as RunState
from hawker.fsm.runner import Runner
from hawker.ids import AppName, InstanceId, MachineId, new_ulid
from hawker.image.manifest import Resolved
from hawker.log import bind
from hawker.machine import GONE, OFF, SETTLED, Operation, OperationVerdict, State, judge
from hawker.node import Resources
from hawker.record.machine import (
    MACHINES,
    Lease,
    MachineRecord,
    MachineTarget,
    Previous,
    claimed_by,
    machine_resource,
    rests,
)
from hawker.record.move import check_here
from hawker.secret.secrets import Secrets
from hawker.store.contract import Reader, Store, Tx
from hawker.value_object import ValueObject
from hawker.volume.attachment import as_wished, kept, reattach
from hawker.worker import leases
from hawker.worker.admission import Admission, Granted
from hawker.worker.capacity import at_rest
from hawker.worker.lifecycle.destroy import DESTROY
from hawker.worker.lifecycle.restart import RESTART
from hawker.worker.lifecycle.start import CREATE, START, Launch
from hawker.worker.lifecycle.stop import STOP, Halt, RestartInput
from hawker.worker.lifecycle.suspend import RESUME, SUSPEND, HoldInput
from hawker.worker.lifecycle.update import UPDATE
from hawker.worker.table import Happened, MachineTable

R = TypeVar("R")
_log = bind("hawker.operations")


def _nothing(tx: Tx) -> None:
    return None


class ConfigChange(ValueObject, frozen=True):
    """A new version of a machine's config. `lease` is taken with it: both are promised, or neither."""

    config: MachineConfig
    image: Resolved
    launch: bool
    """The machine is started with the new config; otherwise it is left off."""
    current_version: str | None
    """The version that the caller has seen: with another one the change is refused. None: whatever it is."""
    skip_secrets: bool = False
    """The new version is given none of the secrets of its app."""
    lease: Lease | None = None
    container_images: Mapping[str, Resolved] = msgspec.field(default_factory=dict)


class Operations:
    """`driver` is its name, `suspension` how it suspends machines, None where it cannot. `guest_disks`: machines have
    their volumes as block files; `plain_volumes`: a mount that is to be encrypted takes a volume that is not. What
    makes a machine of an order is in `order.py`."""

    def __init__(
        self,
        store: Store,
        table: MachineTable,
        driver: str,
        suspension: str | None,
        secrets: Secrets,
        clock: Clock,
        runner: Runner[Any],
        admission: Admission,
        guest_disks: bool = False,
        plain_volumes: bool = False,
    ) -> None:
        self._store = store
        self._table = table
        self._driver = driver
        self._suspension = suspension
        self._clock = clock
        self._secrets = secrets
        self._runner = runner
        self._admission = admission
        self._guest_disks = guest_disks
        self._plain_volumes = plain_volumes

    async def rest(self, machine_id: MachineId, instance_id: InstanceId, *, suspend: bool) -> None:
        """Stop the machine, or suspend it where that can be done, because nobody needs it. Raises `Conflict` when it is
        not that instance any more or something is under way with it, `LeaseHeld` when a client holds it."""

        def apply(tx: Tx) -> None:
            record = self._table.get(tx, machine_id)
            leases.check(record, None, self._clock.now())
            running = record.running
            if record.state is not State.STARTED or running is None or running.instance_id != instance_id:
                raise Conflict("another instance runs, or none")
            if journal.active(tx, machine_resource(machine_id)) is not None:
                raise Conflict("a run is at the machine")
            if suspend and self._suspension is not None and not claimed_by(record):
                event = Happened("suspend", "suspending", "edge")
                self._begin(tx, record, SUSPEND, event, State.SUSPENDING, rested=instance_id)
                return
            event = Happened("stop", "stopping", "edge")
            self._table.change(tx, record, event, state=State.STOPPING, awaited=None, rested=instance_id)
            self._accept(tx, STOP, record.id, _halt(record, None, None))

        await self._commit(STOP, apply)

    async def start(
        self,
        target: MachineTarget,
        *,
        also: Callable[[Tx], None] = _nothing,
        source: str = "user",
        rested: bool = False,
    ) -> State:
        """Returns the state the machine was in. A suspended one goes on with the instance and the room that it has.
        `also` is done in the transaction of a start that was needed. With `rested` only a machine is started that
        nobody has stopped since it was put to rest: raises `Conflict` for others."""

        def apply(tx: Tx) -> MachineRecord:
            record = self._claim(tx, target)
            if rested and not rests(record):
                raise Conflict("it does not rest: somebody stopped it, or it runs")
            verdict = judge(Operation.START, self._state(tx, record))
            if record.state is State.SUSPENDED:
                self._begin(tx, record, RESUME, Happened("start", "starting", source), State.STARTING)
                also(tx)
            elif verdict is OperationVerdict.GO:
                record = self._take_back(tx, record)
                run = self._launch(True)
                granted = self._admission.admit(tx, record, record.config)
                self._table.change(
                    tx,
                    record,
                    Happened("start", "starting", source),
                    state=State.STARTING,
                    holds=granted.holds,
                    gpus=granted.gpus,
                    restarts=0,
                    awaited=run.instance_id,
                    rested=None,
                )
                self._accept(tx, START, record.id, run)
                also(tx)
            return record

        before = await self._commit(START, apply)
        await self._overtake(before)
        return before.state

    async def suspend(self, target: MachineTarget) -> str:
        """Suspends a machine and says how it is done. Raises `NotServed` where the driver cannot."""
        if self._suspension is None:
            what = f"suspending a machine is not served by this node's driver ({self._driver}) as it is set up"
            raise NotServed(f"{what}: stop the machine instead")

        def apply(tx: Tx) -> None:
            record = self._claim(tx, target)
            if claimed_by(record):
                raise NotServed("suspending a machine with GPUs is not served: what they hold cannot be saved; stop it")
            if judge(Operation.SUSPEND, record.state) is OperationVerdict.GO:
                self._begin(tx, record, SUSPEND, Happened("suspend", "suspending", "user"), State.SUSPENDING)

        await self._commit(SUSPEND, apply)
        return self._suspension

    def _begin(
        self,
        tx: Tx,
        record: MachineRecord,
        flow: Flow[HoldInput],
        event: Happened,
        state: State,
        rested: InstanceId | None = None,
    ) -> None:
        """With the instance that it has."""
        assert record.running is not None, "a machine that runs, or is held still, has an instance"
        self._table.change(tx, record, event, state=state, rested=rested)
        self._accept(tx, flow, record.id, HoldInput(instance_id=record.running.instance_id))

    async def stop(
        self,
        target: MachineTarget,
        *,
        signal: str | None,
        timeout_s: float | None,
        also: Callable[[Tx], None] = _nothing,
    ) -> None:
        """`also` is done in the same transaction, be the machine stopped already or not."""

        def apply(tx: Tx) -> MachineRecord | None:
            record = self._claim(tx, target)
            also(tx)
            if judge(Operation.STOP, record.state) is OperationVerdict.NOTHING_TO_DO:
                if record.rested is not None:  # from now on it is stopped because somebody wants it to be
                    self._table.change(tx, record, rested=None)
                return None
            event = Happened("stop", "stopping", "user")
            self._table.change(tx, record, event, state=State.STOPPING, awaited=None, rested=None)
            self._accept(tx, STOP, record.id, _halt(record, signal, timeout_s))
            return record

        await self._overtake(await self._commit(STOP, apply), START, SUSPEND, RESUME, RESTART, UPDATE)

    async def restart(self, target: MachineTarget, *, signal: str | None, timeout_s: float | None) -> None:
        def apply(tx: Tx) -> MachineRecord:
            record = self._claim(tx, target)
            judge(Operation.RESTART, self._state(tx, record))
            record = self._take_back(tx, record)
            run = self._relaunch(record, True, signal, timeout_s)
            granted = self._admission.admit(tx, record, record.config)
            self._table.change(
                tx,
                record,
                Happened("restart", "restarting", "user"),
                state=State.RESTARTING,
                holds=_either(record.holds, granted.holds),
                gpus=granted.gpus,
                restarts=0,
                awaited=run.instance_id,
            )
            self._accept(tx, RESTART, record.id, run)
            return record

        await self._overtake(await self._commit(RESTART, apply))

    async def update(self, target: MachineTarget, change: ConfigChange) -> MachineRecord:
        """Make a new version. Raises `Conflict` when `current_version` is stale or another change is under way.

        Until the old instance has made room, the machine holds what either version needs."""

        def apply(tx: Tx) -> tuple[MachineRecord, MachineRecord]:
            record = self._claim(tx, target)
            state = self._state(tx, record)
            judge(Operation.UPDATE, state)
            if change.current_version not in (None, record.version):
                raise Conflict("machine update failed due to concurrent update")
            check_standbys(tx, record.app, change.config)
            self._admission.allow(tx, record, change.config)
            config = kept(tx, record, self._wished(change.config))
            if change.launch and config.mounts:
                record = self._take_back(tx, record)
            run = self._relaunch(record, change.launch, None, None)
            if change.launch:
                granted = self._admission.admit(tx, record, change.config)
            else:
                granted = Granted(Resources(), claimed_by(record))
            updated = self._table.change(
                tx,
                record,
                Happened("update", "updating", "user"),
                state=State.UPDATING,
                version=self._table.next_version(tx, record),
                config=config,
                image=change.image,
                container_images=dict(change.container_images),
                holds=_either(record.holds, granted.holds),
                gpus=granted.gpus,
                restarts=0,
                awaited=run.instance_id,
                lease=self._lease(record, target, change),
                previous=Previous(
                    version=record.version,
                    config=record.config,
                    image=record.image,
                    container_images=record.container_images,
                    state=state,
                    holds=at_rest(record) if state in OFF else record.holds,
                ),
            )
            self._table.add_version(tx, updated)
            self._secrets.pin(tx, updated.app, updated.id, updated.version, skip=change.skip_secrets)
            self._accept(tx, UPDATE, record.id, run)
            return record, updated

        before, updated = await self._commit(UPDATE, apply)
        await self._overtake(before)
        return updated

    def _lease(self, record: MachineRecord, target: MachineTarget, change: ConfigChange) -> Lease | None:
        if change.lease is None:
            return record.lease
        return leases.taken(record, target.nonce, self._clock.now(), change.lease)

    async def destroy(self, target: MachineTarget, *, force: bool) -> None:
        def apply(tx: Tx) -> MachineRecord | None:
            record = self._claim(tx, target)
            if judge(Operation.DESTROY, self._state(tx, record), force=force) is OperationVerdict.NOTHING_TO_DO:
                return None
            self._table.change(
                tx, record, Happened("destroy", "destroying", "user"), state=State.DESTROYING, lease=None, awaited=None
            )
            self._accept(tx, DESTROY, record.id, Halt(signal="SIGKILL", timeout_s=0.0))
            return record

        overtaken = (CREATE, START, STOP, SUSPEND, RESUME, RESTART, UPDATE)
        await self._overtake(await self._commit(DESTROY, apply), *overtaken)

    async def cordon(self, target: MachineTarget, cordoned: bool) -> None:
        def apply(tx: Tx) -> None:
            record = self._claim(tx, target)
            if record.state in GONE:
                raise NotFound("machine not found")
            if record.cordoned != cordoned:
                self._table.change(tx, record, cordoned=cordoned)

        await self._store.write(apply)

    async def _commit(self, flow: Flow[Any], apply: Callable[[Tx], R]) -> R:
        """Durably. Once it returns the operation is promised, whether the answer arrives or not."""
        reach(f"{flow.name}.accept.before")
        promised = await self._store.write(apply)
        reach(f"{flow.name}.accept.after")
        return promised

    def _claim(self, tx: Tx, target: MachineTarget) -> MachineRecord:
        record = self._table.find(tx, target.app, target.machine_id)
        check_here(tx, record.id)
        leases.check(record, target.nonce, self._clock.now())
        return record

    def _state(self, tx: Reader, record: MachineRecord) -> State:
        """What decides whether an operation may begin: between two tries, a machine is as good as stopped."""
        waits = record.state is State.STARTING and journal.active(tx, machine_resource(record.id)) is None
        return State.STOPPED if waits else record.state

    def _take_back(self, tx: Tx, record: MachineRecord) -> MachineRecord:
        """With its volume, if that was detached. Raises `WrongState` when it is not to be had."""
        taken = reattach(tx, record, self._clock.now(), to_guest=self._guest_disks)
        return self._table.note_attached(tx, record, taken)

    def _wished(self, config: MachineConfig) -> MachineConfig:
        return as_wished(config) if self._plain_volumes else config

    async def _overtake(self, before: MachineRecord | None, *flows: Flow[Any]) -> None:
        """What was just accepted does not wait behind a run of these flows, and no start that was to come later is left
        over. Without it, after a crash say, the end is the same: only an awaited launch is done. So it never fails the
        operation, which is promised by now: on a full disk it is left out."""
        if before is None or before.state in SETTLED:
            return
        names, resource = {flow.name for flow in flows}, machine_resource(before.id)
        try:
            for run in self._runner.list(resource=resource, active=True):
                if run.state is RunState.DELAYED or (run.flow in names and run.state is not RunState.QUEUED):
                    await self._runner.cancel(run.run_id, "overtaken by the user")
        except HawkerError as error:
            _log.warning("what is under way is not overtaken", extra={"machine": before.id, "reason": str(error)})

    def _accept(self, tx: Tx, flow: Flow[I], machine_id: MachineId, input: I) -> None:
        self._runner.accept(tx, flow, machine_resource(machine_id), input, when_busy=WhenBusy.QUEUE)

    def _launch(self, launch: bool) -> Launch:
        return Launch(instance_id=InstanceId(new_ulid(self._clock)), launch=launch)

    def _relaunch(
        self, record: MachineRecord, launch: bool, signal: str | None, timeout_s: float | None
    ) -> RestartInput:
        halt = _halt(record, signal, timeout_s)
        return RestartInput(
            instance_id=InstanceId(new_ulid(self._clock)),
            launch=launch,
            signal=halt.signal,
            timeout_s=halt.timeout_s,
        )


def check_standbys(tx: Reader, app: AppName, config: MachineConfig) -> None:
    """A spare stands by for machines of its own app. Those of other nodes are asked about when one is lost. Raises
    `Unprocessable`."""
    for index, machine_id in enumerate(config.standbys or ()):
        there = tx.get(MACHINES, machine_id)
        if there is not None and there.app != app:
            raise Unprocessable(f"standbys[{index}]: machine {machine_id} is not one of app '{app}'")


def _halt(record: MachineRecord, signal: str | None, timeout_s: float | None) -> Halt:
    own_signal, own_timeout_s = stop_config(record.config)
    return Halt(signal=signal or own_signal, timeout_s=own_timeout_s if timeout_s is None else timeout_s)


def _either(first: Resources, second: Resources) -> Resources:
    """Room for the one as well as for the other."""
    return Resources(**{name: max(getattr(first, name), getattr(second, name)) for name in Resources.__struct_fields__})
