"""One machine of a deploy after another: each is changed, proves itself, or is taken back. All of it by the calls that
any client makes, so that a machine may be on any node.

How far a slot is, is written down before a call is made, and looked up at the machine after a crash: an update is known
by the release in the machine's config, a new machine by its order's key.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar

import anyio
from msgspec.structs import replace

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import (
    CREATE_MACHINE,
    DELETE_MACHINE,
    GET_MACHINE,
    LIST_MACHINES,
    UPDATE_MACHINE,
    CreateMachineRequest,
    DeleteMachineQuery,
    Machine,
    MachineParams,
    UpdateMachineRequest,
)
from hawker.api.contract.machine_operation import START_MACHINE
from hawker.api.route import B, Q, R, Unary
from hawker.clock import Clock
from hawker.deploys.coordinator import Term
from hawker.deploys.deploy_table import DeployTable
from hawker.deploys.health_gates import Expected, GateState, fallen, judged, start_of
from hawker.deploys.plan import budget, heads_of, is_of
from hawker.errors import Conflict, Fault, HawkerError, LeaseHeld, NotFound, Unavailable
from hawker.machine import GONE, OFF, State
from hawker.record.deploy import DeployRecord, DeployWish, SlotBefore, SlotKind, SlotRecord, SlotState

T = TypeVar("T")

LOOK_S = 0.25
"""The seconds between two looks at a machine that proves itself, and at what was asked of the deploy."""
AT_ONCE = 32
"""The most calls of one deploy at a time."""
GROUPS_AT_ONCE = 16
_RETRY_S = 1.0
_WATCH_S = 2.0
"""Between two looks at the machines that have proven themselves, all in one call."""


class SlotFailed(Exception):
    """A slot of a deploy that cannot become what it is to be."""

    def __init__(self, slot: SlotRecord, text: str) -> None:
        super().__init__(text)
        self.slot = slot
        self.text = text


class SlotSkipped(Exception):
    """A slot whose machine is not to be had: the deploy goes on without."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


@dataclass(frozen=True, slots=True)
class Moves:
    """The moves of one deploy, in a term of its coordinator. `reach` is a point where a test may kill the process.
    `check` runs the machine checks of the slot's group, and raises `SlotFailed`."""

    app: str
    version: int
    table: DeployTable
    caller: Caller
    clock: Clock
    reach: Callable[[str], None]
    term: Term
    check: "Callable[[Moves, SlotRecord], Awaitable[None]]"

    # What is written down.

    @property
    def record(self) -> DeployRecord:
        return self.table.find(self.table.store, self.app, self.version)

    def slots(self, *kinds: SlotKind) -> list[SlotRecord]:
        return [slot for slot in self.table.slots(self.table.store, self.app, self.version) if slot.kind in kinds]

    async def note(self, slot: SlotRecord, /, **fields: Any) -> SlotRecord:
        """Changes fields of a slot's record, durable when this returns."""
        return await self.table.store.write(
            lambda tx: self.table.change_slot(tx, self.app, self.version, slot.number, **fields)
        )

    async def begun(self, slot: SlotRecord, state: SlotState, text: str = "") -> SlotRecord:
        """Notes the slot's state before anything is done to its machine: whoever coordinates the deploy next knows of
        it."""
        await self.term.check()
        slot = await self.note(slot, state=state, text=text)
        await self.term.keep()
        return slot

    async def say(self, stage: str) -> None:
        if self.record.stage != stage:
            await self.change(stage=stage)

    async def change(self, **fields: Any) -> None:
        """Changes fields of the deploy's record."""
        await self.table.store.write(lambda tx: self.table.change(tx, self.app, self.version, **fields))

    # Forward.

    async def by_waves(self, *, gated: bool) -> None:
        """Changes machines until every one that stays is of the release, and every green one is there: region after
        region, where there are waves, each watched for a while before the next. Raises `SlotFailed`, also for a machine
        that had proven itself and serves no longer."""
        waves, said = self.record.waves, "machines come to the release"
        async with anyio.create_task_group() as tasks:
            failures: list[SlotFailed] = []

            async def watch() -> None:
                try:
                    await self.watch()
                except SlotFailed as failed:
                    failures.append(failed)
                    tasks.cancel_scope.cancel()

            async def work() -> None:
                try:
                    for number, wave in enumerate(waves or ((),), 1):
                        stage = f"wave {number} of {len(waves)} ({', '.join(wave)}): {said}" if waves else said
                        await self.say(stage)
                        await self.forward(self._of_wave(number), gated=gated)
                        if number < len(waves):
                            await self._bake(number)
                except SlotFailed as failed:
                    failures.append(failed)
                tasks.cancel_scope.cancel()

            if gated:
                tasks.start_soon(watch)
            tasks.start_soon(work)
        if failures:
            raise failures[0]

    def _of_wave(self, number: int) -> list[SlotRecord]:
        """New machines come with the last one."""
        slots, waves = self.slots(SlotKind.UPDATE, SlotKind.CREATE), self.record.waves
        if not waves:
            return slots
        last, earlier = number == len(waves), {region for wave in waves[:-1] for region in wave}
        return [slot for slot in slots if slot.region in waves[number - 1] or (last and slot.region not in earlier)]

    async def _bake(self, wave: int) -> None:
        """Until it was watched long enough, counted from when that began, whoever began it."""
        record = self.record
        if record.baked >= wave:
            return
        if record.baked_at is None:
            await self.change(baked_at=self.clock.now() + record.limits.bake_s)
        left_s = min(record.limits.bake_s, (self.record.baked_at or 0.0) - self.clock.now())
        await self.say(f"wave {wave} of {len(record.waves)} is watched for {max(left_s, 0):.0f} s")
        await self.clock.sleep(max(left_s, 0.0))
        await self.change(baked=wave, baked_at=None)

    async def watch(self, for_s: float = inf) -> None:
        """Machines that have proven themselves go on serving for so long. Raises `SlotFailed`."""
        until = self.clock.monotonic() + for_s
        while (left_s := until - self.clock.monotonic()) > 0:
            await self.clock.sleep(min(left_s, _WATCH_S))
            slots = self.slots(SlotKind.UPDATE, SlotKind.CREATE)
            done = {slot.machine: slot for slot in slots if slot.state is SlotState.DONE and slot.launch}
            with suppress(HawkerError):
                page = await self.caller.call(LIST_MACHINES, params=AppParams(app_name=self.app))
                for machine in page.items:
                    slot = done.get(machine.id)
                    if slot is not None and machine.host_status == "ok" and machine.version == slot.version:
                        fell = fallen(machine)
                        if fell is not None:
                            raise SlotFailed(slot, fell)

    async def forward(self, slots: Sequence[SlotRecord], *, gated: bool = True) -> None:
        """Each group within its budget, groups side by side. Raises `SlotFailed` for the first that fails."""
        left = [slot for slot in slots if slot.state not in (SlotState.DONE, SlotState.SKIPPED)]
        failed = next((slot for slot in left if slot.state is SlotState.FAILED), None)
        if failed is not None:
            raise SlotFailed(failed, failed.text)

        async def of_group(group: str) -> None:
            await self._roll([slot for slot in slots if slot.group == group], gated=gated)

        await side_by_side(of_group, dict.fromkeys(slot.group for slot in left), GROUPS_AT_ONCE)

    async def _roll(self, slots: Sequence[SlotRecord], *, gated: bool) -> None:
        """The first machine that has to prove itself goes alone, and then the first of each other region does so
        there; those after it are of the same image and config. No region has more away than its own share."""
        limits = self.record.limits
        warm = [slot for slot in slots if slot.launch and slot.kind is SlotKind.UPDATE]
        at_once = budget(limits.max_unavailable, len(warm)) if gated and warm else AT_ONCE
        of_regions = Counter(slot.region for slot in warm if gated)
        left = [slot for slot in slots if slot.state not in (SlotState.DONE, SlotState.SKIPPED)]

        async def one(slot: SlotRecord) -> None:
            await self.go(slot, limits.smoke_rest_s, gated=gated)

        async def alone(slot: SlotRecord) -> None:
            await self.go(slot, limits.smoke_s, gated=gated, first=True)

        for heads in heads_of(slots, left) if gated else ():
            await self._by_regions(alone, heads, at_once, of_regions)
            left = [slot for slot in left if slot not in heads]
        await self._by_regions(one, left, at_once, of_regions)

    async def _by_regions(
        self,
        do: Callable[[SlotRecord], Awaitable[None]],
        slots: Sequence[SlotRecord],
        at_once: int,
        warm: Counter[str | None],
    ) -> None:
        """So many at a time, and of what is updated in a region no more than its own share. `warm` are the machines of
        the group that run, by region."""
        away = Counter[str | None]()

        async def one(slot: SlotRecord) -> None:
            shared = slot.kind is SlotKind.UPDATE and warm[slot.region] > 0
            while shared and away[slot.region] >= self.most_of_region(warm, slot.region):
                await self.clock.sleep(LOOK_S)
            away[slot.region] += shared
            await do(slot)
            away[slot.region] -= shared

        await side_by_side(one, slots, at_once)

    def most_of_region(self, warm: Counter[str | None], region: str | None) -> int:
        """Machines of a group that may be away at once in a region. `warm` are its machines that run, by region."""
        return budget(self.record.limits.max_unavailable, warm[region])

    async def go(self, slot: SlotRecord, smoke_s: float, *, gated: bool, first: bool = False) -> None:
        """Change the slot's machine and wait until it has proven itself; the `first` one of its group is also held to
        the machine checks. Raises `SlotFailed`."""
        await self.until_resumed()
        try:
            slot = await self._changed(slot)
            self.reach("changed")
            if gated and slot.launch and first and any(task.group == slot.group for task in self.record.checks):
                await self.prove(slot, Expected(slot.version, smoke_s, checks=False))
                await self.check(self, slot)
                smoke_s = 0.0
            if gated:
                await self.prove(slot, Expected(slot.version, smoke_s) if slot.launch else None)
        except SlotSkipped as skipped:
            await self.note(slot, state=SlotState.SKIPPED, text=skipped.text)
            return
        await self.note(slot, state=SlotState.DONE, text="")

    async def until_resumed(self) -> None:
        while self.record.asked is DeployWish.PAUSE:
            await self.clock.sleep(LOOK_S)

    async def _changed(self, slot: SlotRecord) -> SlotRecord:
        if slot.state is SlotState.PROVING:
            return slot
        slot = await self.begun(slot, SlotState.CHANGING)
        self.reach("begun")
        if slot.kind is SlotKind.UPDATE:
            version = await self.again(slot, lambda: self._update(slot))
            return await self.note(slot, state=SlotState.PROVING, version=version)
        made = await self.again(slot, lambda: self.order(slot))
        return await self.note(slot, state=SlotState.PROVING, machine=made.id, version=made.version, region=made.region)

    async def _update(self, slot: SlotRecord) -> str:
        """The machine's version of this release."""
        assert slot.before is not None and slot.config is not None
        machine = await self.get(slot)
        if machine.state in GONE:
            raise SlotSkipped("it was destroyed meanwhile")
        if machine.version != slot.before.version:
            if is_of(machine.config, self.version):
                return machine.version
            raise SlotFailed(slot, "somebody else changed it since the deploy began")
        body = UpdateMachineRequest(
            config=slot.config, current_version=slot.before.version, skip_launch=None if slot.launch else True
        )
        updated = await self.change_machine(UPDATE_MACHINE, slot, body=body)
        return updated.version

    async def order(self, slot: SlotRecord) -> Machine:
        """The slot's own machine, which is ordered once."""
        assert slot.config is not None
        body = CreateMachineRequest(
            config=slot.config,
            region=slot.region,
            skip_launch=None if slot.launch else True,
            skip_service_registration=slot.cordoned or None,
        )
        await self.term.check()
        key = f"deploy-{self.version}-{slot.number}-{self.record.began_at:.3f}"
        return await self.caller.call(
            CREATE_MACHINE, params=AppParams(app_name=self.app), body=body, idempotency_key=key
        )

    async def again(self, slot: SlotRecord, call: Callable[[], Awaitable[T]]) -> T:
        """Makes a call until it succeeds, or can no longer within the deploy's patience. What may have taken effect is
        asked for again: every call looks first, or has a key. Raises `SlotFailed`, `SlotSkipped`."""
        limits, began = self.record.limits, self.clock.monotonic()
        while True:
            late = self.clock.monotonic() - began >= limits.wait_s  # a call that lasts long is not the last one
            try:
                return await call()
            except NotFound as error:
                if slot.kind is SlotKind.UPDATE:
                    raise SlotSkipped("it was destroyed meanwhile") from error
                raise SlotFailed(slot, str(error)) from error
            except HawkerError as error:
                if late and isinstance(error, Unavailable) and limits.skip_unreachable and slot.before is not None:
                    raise SlotSkipped(f"its host is away: {error}") from error
                if late or not (error.retry or isinstance(error, Fault)):
                    raise SlotFailed(slot, str(error)) from error
                waits = "for the lease that a client holds" if isinstance(error, LeaseHeld) else str(error)
                await self._tell(slot, f"waits: {waits}")
            await self.clock.sleep(_RETRY_S)

    async def _tell(self, slot: SlotRecord, text: str) -> None:
        if slot.number < 0:
            await self.say(f"{slot.group}: {text[:500]}")
            return
        current = self.table.slot(self.table.store, self.app, self.version, slot.number)
        if current.text != text[:500]:
            await self.note(slot, text=text[:500])

    async def prove(self, slot: SlotRecord, expected: Expected | None) -> None:
        """Wait at the machine's gates; one that is not to run only comes to rest. Raises `SlotFailed`."""
        deadline = self.clock.monotonic() + self.record.limits.wait_s
        seen: tuple[str | None, float] = (None, 0.0)
        while True:
            machine = await self.again(slot, lambda: self.get(slot))
            now = self.clock.monotonic()
            start = start_of(machine)
            if start != seen[0]:
                seen = start, now
            if expected is None:
                if machine.state in OFF or machine.state is State.SUSPENDED:
                    return
                waits = str(machine.state)
            else:
                verdict = judged(machine, expected, None if start is None else now - seen[1])
                if verdict.gate is GateState.OPEN:
                    return
                if verdict.gate is GateState.SHUT:
                    raise SlotFailed(slot, verdict.text)
                waits = verdict.text
            if now >= deadline + (expected.smoke_s if expected else 0):
                raise SlotFailed(slot, f"not ready after {self.record.limits.wait_s:g} s: {waits}")
            await self._tell(slot, waits)
            await self.clock.sleep(LOOK_S)

    # Beside: machines that go, and the routing of new ones.

    async def destroy(self, slot: SlotRecord) -> None:
        """Destroys the slot's machine, if it has one and is not done. Raises `SlotFailed`."""
        if slot.state is SlotState.DONE or not slot.machine:
            return
        await self.begun(slot, SlotState.CHANGING)
        try:
            await self.again(replace(slot, kind=SlotKind.UPDATE), lambda: self.delete(slot))
        except SlotSkipped as skipped:
            away = "destroyed" not in skipped.text
            await self.note(slot, state=SlotState.SKIPPED if away else SlotState.DONE, text=skipped.text)
            return
        await self.note(slot, state=SlotState.DONE, text="")

    async def delete(self, slot: SlotRecord) -> None:
        await self.change_machine(DELETE_MACHINE, slot, query=DeleteMachineQuery(force=True))

    async def each(self, slots: Iterable[SlotRecord], route: Unary[MachineParams, Any, Any, Any]) -> None:
        """Makes one call for each slot's machine; it may be made twice. Raises `SlotFailed`."""

        async def one(slot: SlotRecord) -> None:
            there = replace(slot, kind=SlotKind.UPDATE)
            with suppress(SlotSkipped):
                await self.again(there, lambda: self.change_machine(route, slot))

        await side_by_side(one, slots, AT_ONCE)

    # Back.

    async def back(self, slots: Sequence[SlotRecord]) -> None:
        """Takes the slots back: a machine that was changed gets the config that it had, a machine that was made goes.
        Machines that do not serve come before those that do, the last first, each group within its budget. What cannot
        be taken back is written down, and keeps nothing else from it."""
        touched = [slot for slot in slots if slot.state not in (SlotState.WAITING, SlotState.RETURNED, SlotState.LEFT)]

        async def of_group(group: str) -> None:
            mine = [slot for slot in touched if slot.group == group][::-1]
            mine.sort(key=lambda slot: slot.state is SlotState.DONE)
            at_once = budget(self.record.limits.max_unavailable, len(mine))
            warm = Counter(slot.region for slot in slots if slot.group == group and slot.launch and slot.before)
            await self._by_regions(self._return, mine, at_once, warm)

        await side_by_side(of_group, dict.fromkeys(slot.group for slot in touched), GROUPS_AT_ONCE)

    async def _return(self, slot: SlotRecord) -> None:
        why = slot.text if slot.state is SlotState.FAILED else ""
        slot = await self.begun(slot, SlotState.RETURNING, slot.text)
        self.reach("returning")
        try:
            if slot.kind is SlotKind.UPDATE:
                await self.restore(slot)
            elif slot.kind is not SlotKind.DESTROY:
                made = await self.again(slot, lambda: self.order(slot)) if not slot.machine else None
                slot = replace(slot, machine=made.id) if made is not None else slot
                await self.again(replace(slot, kind=SlotKind.UPDATE), lambda: self.delete(slot))
        except SlotSkipped as skipped:
            gone = "destroyed" in skipped.text
            await self.note(slot, state=SlotState.RETURNED if gone else SlotState.LEFT, text=skipped.text)
            return
        except SlotFailed as failed:
            refused = not isinstance(failed.__cause__, Unavailable | Fault)
            if slot.kind is not SlotKind.UPDATE and not slot.machine and refused:
                await self.note(slot, state=SlotState.RETURNED, text=why)  # it was never made, and never will be
                return
            await self.note(slot, state=SlotState.LEFT, text=failed.text)
            return
        self.reach("returned")
        await self.note(slot, state=SlotState.RETURNED, machine=slot.machine, text=why)

    async def restore(self, slot: SlotRecord) -> None:
        """Gives the slot's machine the config that it had before, and waits until it has proven itself. Raises
        `SlotFailed`, `SlotSkipped`."""
        before = slot.before
        assert before is not None
        version = await self.again(slot, lambda: self._update_back(slot, before))
        slot = replace(slot, version=version)
        await self.prove(slot, Expected(version, 0.0, checks=False) if before.started else None)

    async def _update_back(self, slot: SlotRecord, before: SlotBefore) -> str:
        """The machine's version once it has its old config again."""
        machine = await self.get(slot)
        if machine.state in GONE:
            raise SlotSkipped("it was destroyed meanwhile")
        if is_of(machine.config, self.version):
            body = UpdateMachineRequest(
                config=before.config, current_version=machine.version, skip_launch=None if before.started else True
            )
            return (await self.change_machine(UPDATE_MACHINE, slot, body=body)).version
        if before.started and machine.state is State.STOPPING:
            raise Conflict("it is stopping still")  # and would stay stopped: a start counts once it has
        if before.started and machine.state in OFF:
            await self.change_machine(START_MACHINE, slot)
        return machine.version

    # The API.

    def at(self, slot: SlotRecord) -> MachineParams:
        return MachineParams(app_name=self.app, machine_id=slot.machine)

    async def change_machine(self, route: Unary[MachineParams, Q, B, R], slot: SlotRecord, **options: Any) -> R:
        """A call that changes the slot's machine, in this term."""
        await self.term.check()
        return await self.caller.call(route, params=self.at(slot), deploy_term=self.term.text, **options)

    async def get(self, slot: SlotRecord) -> Machine:
        """The slot's machine as its host has it. Raises `Unavailable` where the host is away: what others know of it
        may be old."""
        machine = await self.caller.call(GET_MACHINE, params=self.at(slot))
        if machine.host_status != "ok":
            raise Unavailable(f"the host of machine {slot.machine} is {machine.host_status}")
        return machine


async def side_by_side(do: Callable[[T], Awaitable[None]], things: Iterable[T], at_once: int) -> None:
    """Does something with each of `things`, at most `at_once` at a time, in order. Raises the first `SlotFailed`, once
    all others have been cut short."""
    left, failures = iter(list(things)), list[SlotFailed]()
    async with anyio.create_task_group() as tasks:

        async def one_after_another() -> None:
            try:
                for thing in left:
                    await do(thing)
            except SlotFailed as failed:
                failures.append(failed)
                tasks.cancel_scope.cancel()

        for _ in range(at_once):
            tasks.start_soon(one_after_another)
    if failures:
        raise failures[0]
