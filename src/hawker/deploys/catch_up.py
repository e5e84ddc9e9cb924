"""What an app's home does for its releases by itself. It brings machines whose host was away to the release that
counts, once that host is back; and it ends what a client left that drives deploys by itself, such as a flyctl that was
killed.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.deploy import CreateDeployRequest, Strategy
from hawker.api.contract.machine import DELETE_MACHINE, LIST_MACHINES, DeleteMachineQuery, Machine, MachineParams
from hawker.api.contract.machine_operation import GET_LEASE
from hawker.api.grant import Everything
from hawker.deferred import deferred
from hawker.deploys.deploy_table import DeployTable
from hawker.deploys.releases import DRIVEN, ENDED, ReleaseStatus, moved, newest_first, pinned_of
from hawker.errors import Fault, HawkerError, NoRoom, NoRoomAtVolume, NotFound
from hawker.fsm import journal
from hawker.log import bind
from hawker.machine import GONE, OFF
from hawker.record.app import APPS, RELEASES, ReleaseRecord
from hawker.record.deploy import DEPLOYS, DeployRecord, SlotKind, SlotRecord, SlotState, deploy_key, deploy_resource
from hawker.store.contract import Tx
from hawker.value_object import ValueObject

if TYPE_CHECKING:
    from hawker.deploys import accept, coordinator, moves, plan
else:
    coordinator = deferred("hawker.deploys.coordinator")
    moves = deferred("hawker.deploys.moves")
    plan = deferred("hawker.deploys.plan")

LOOK_S = 10.0
SILENT_S = 60.0
"""The seconds without a word, a lease, a change or a machine of its own after which a client that drives a deploy is
gone."""
Adoption: TypeAlias = Literal["finish", "back", "off"]
_ORDERED = frozenset({SlotState.CHANGING, SlotState.RETURNING, SlotState.LEFT, SlotState.FAILED})
_log = bind("hawker.deploys")


def _pass_by(point: str) -> None:
    return None


async def _check_nothing(deploy: "moves.Moves", slot: SlotRecord) -> None:
    return None


class _Behind(ValueObject, frozen=True):
    """Machines that a complete deploy left behind: those that are to be of its release, and those that were to go."""

    late: frozenset[str]
    leaving: frozenset[str]


class CatchUp:
    """The task of a node that catches up with releases. `intake` begins deploys; it is asked for when one is due, since
    a node that never deploys loads none of it. `adopt` is what becomes of a deploy whose client is gone: it is
    finished, the release before it comes back, or nothing."""

    def __init__(self, table: DeployTable, intake: "Callable[[], accept.Intake]", adopt: Adoption) -> None:
        self._table = table
        self._store, self._clock = table.store, table.clock
        self.intake = intake
        self._adopt = adopt
        self._said: dict[str, str] = {}
        self._clean: dict[str, tuple[int, str]] = {}  # the newest release of an app, where it left no machine behind

    async def serve(self) -> None:
        """Looks every `LOOK_S`, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Looks once at every app of which this node is the home."""
        for app, record in list(self._store.scan(APPS)):
            if record.home is not None:
                continue  # another node's, a deploy of which this one has driven
            await self._clock.sleep(0)
            try:
                await self._look_at(app)
                self._said.pop(app, None)
            except HawkerError as error:
                if self._said.get(app) != str(error):
                    self._said[app] = str(error)
                    _log.warning("cannot bring machines to their release", extra={"app": app, "error": str(error)})
        for app in [each for each in {*self._said, *self._clean} if self._store.get(APPS, each) is None]:
            self._said.pop(app, None)
            self._clean.pop(app, None)

    async def _look_at(self, app: str) -> None:
        store = self._store
        newest = next((record for _, record in store.scan(RELEASES, f"{app}/", limit=1, reverse=True)), None)
        if newest is None or self._clean.get(app) == (newest.version, newest.status):
            return
        if journal.active(store, deploy_resource(app)) is not None:
            return
        deploy = store.get(DEPLOYS, deploy_key(app, newest.version))
        if deploy is not None and newest.status == ReleaseStatus.COMPLETE:
            await self._bring(app, newest, deploy)
        elif deploy is not None and newest.status in ENDED:
            await self._disown(app, newest, deploy)
        elif deploy is None and self._adopt != "off" and self._is_silent(newest):
            await self._take_up(app, newest)

    # Machines whose host was away.

    async def _bring(self, app: str, release: ReleaseRecord, deploy: DeployRecord) -> None:
        behind = self._behind(app, deploy)
        if not (behind.late or behind.leaving):
            self._clean[app] = release.version, release.status
            return
        there = [each for each in await self._machines(app) if each.host_status == "ok" and each.state not in GONE]
        for machine in there:
            if machine.id in behind.leaving:
                await self._remove(app, deploy, machine)
        back = [each.id for each in there if each.id in behind.late and plan.is_group(each)]
        if back:
            still_late = tuple(behind.late.difference(back))
            await self._begin(app, release, "hosts that were away are back", only=back, behind=still_late)

    def _behind(self, app: str, deploy: DeployRecord) -> _Behind:
        table = self._table
        skipped = [each for each in table.slots(table.store, app, deploy.version) if each.state is SlotState.SKIPPED]
        late = {each.machine for each in skipped if each.kind is SlotKind.UPDATE}
        leaving = {each.machine for each in skipped if each.kind is SlotKind.DESTROY}
        return _Behind(frozenset(late | set(deploy.behind)), frozenset(leaving))

    async def _remove(self, app: str, deploy: DeployRecord, machine: Machine) -> None:
        table, params = self._table, MachineParams(app_name=app, machine_id=machine.id)
        with suppress(NotFound):
            await self.intake().fleet.caller.call(DELETE_MACHINE, params=params, query=DeleteMachineQuery(force=True))
        slot = next(each for each in table.slots(table.store, app, deploy.version) if each.machine == machine.id)
        await table.store.write(
            lambda tx: table.change_slot(tx, app, deploy.version, slot.number, state=SlotState.DONE, text="")
        )

    # Orders that were never answered.

    async def _disown(self, app: str, release: ReleaseRecord, deploy: DeployRecord) -> None:
        """Machines that a deploy ordered and never heard of, since this node, which keeps the keys of its orders, was
        away when it was taken back; or since it ended amid an order."""
        table, lost = self._table, list[SlotRecord]()
        for slot in table.slots(table.store, app, deploy.version):
            if slot.kind in (SlotKind.CREATE, SlotKind.CANARY) and slot.state in _ORDERED and not slot.machine:
                lost.append(slot)
        if not lost:
            self._clean[app] = release.version, release.status
            return
        caller = self.intake().fleet.caller
        ended = moves.Moves(
            app, deploy.version, table, caller, self._clock, _pass_by, coordinator.AloneTerm(), _check_nothing
        )
        for slot in lost:
            await self._disown_order(ended, slot)
            _log.warning("an order is taken back that was not answered", extra={"app": app, "slot": slot.number})

    async def _disown_order(self, ended: "moves.Moves", slot: SlotRecord) -> None:
        """By its key: it gives the machine that was made, or one more that goes at once. Raises `HawkerError` where
        that cannot be known yet."""
        try:
            made = await ended.order(slot)
        except HawkerError as error:
            unfilled = isinstance(error, NoRoom | NoRoomAtVolume)  # for lack of room: it would be asked for ever
            if not unfilled and (error.retry or isinstance(error, Fault)):
                raise
            await ended.note(slot, state=SlotState.RETURNED)  # it was never made, and never will be
            return
        with suppress(NotFound):
            await ended.delete(msgspec.structs.replace(slot, machine=made.id))
        await ended.note(slot, state=SlotState.RETURNED, machine=made.id)

    # Clients that are gone.

    def _is_silent(self, release: ReleaseRecord) -> bool:
        waits = release.status in DRIVEN or (release.status == ReleaseStatus.INTERRUPTED and self._adopt == "back")
        return waits and self._clock.now() - release.updated_at >= SILENT_S

    async def _take_up(self, app: str, release: ReleaseRecord) -> None:
        machines = await self._machines(app)
        changed = [each for each in machines if plan.is_of(each.config, release.version) and plan.is_group(each)]
        if await self._is_at_work(app, machines):
            return
        store = self._store
        last = next((each for each in newest_first(store, app) if each.status == ReleaseStatus.COMPLETE), None)
        await store.write(lambda tx: self._interrupted(tx, app, release))
        said = {"app": app, "release": release.version, "client": release.user}
        if not changed:
            _log.warning("a client is gone that had changed no machine", extra=said)
        elif self._adopt == "finish":
            _log.warning("a deploy is taken up whose client is gone", extra=said)
            await self._begin(app, release, f"finishes release {release.version} of {release.user}")
        elif last is not None:
            _log.warning("a deploy is taken back whose client is gone", extra=said)
            await self._begin(app, last, f"takes back release {release.version} of {release.user}")

    async def _is_at_work(self, app: str, machines: Collection[Machine]) -> bool:
        """Whether a client does something with the app: it has a machine for a task, a lease, or changed one lately."""
        now, caller = self._clock.now(), self.intake().fleet.caller
        if any(plan.is_passing(each) and each.state not in {*GONE, *OFF} for each in machines):
            return True
        for machine in machines:
            if now - machine.updated_at.timestamp() < SILENT_S:
                return True
            with suppress(NotFound):
                await caller.call(GET_LEASE, params=MachineParams(app_name=app, machine_id=machine.id))
                return True
        return False

    def _interrupted(self, tx: Tx, app: str, release: ReleaseRecord) -> None:
        if release.status in DRIVEN:
            moved(tx, app, release.version, ReleaseStatus.INTERRUPTED, self._clock.now())
        else:  # looked at once
            failed = msgspec.structs.replace(release, status=ReleaseStatus.FAILED)
            tx.put(RELEASES, deploy_key(app, release.version), failed)

    async def _begin(
        self,
        app: str,
        release: ReleaseRecord,
        label: str,
        *,
        only: Collection[str] | None = None,
        behind: tuple[str, ...] = (),
    ) -> None:
        """A deploy of ours with the release's content. Its commands are not run: nobody knows how far they were."""
        strategy: Strategy = "immediate" if release.strategy == "immediate" else "rolling"
        body = CreateDeployRequest(
            definition=msgspec.json.decode(release.definition) if release.definition else {},
            image=pinned_of(self._store, app, release) or release.image or None,
            strategy=strategy,
            only_machines=None if only is None else tuple(only),
            skip_release_command=True,
            lax=True,
            label=label,
        )
        accepted = await self.intake().accept(app, body, Everything("hawker"), behind)
        for warning in accepted.warnings:
            _log.warning("a release asks for what it does not get", extra={"app": app, "warning": warning})

    async def _machines(self, app: str) -> list[Machine]:
        page = await self.intake().fleet.caller.call(LIST_MACHINES, params=AppParams(app_name=app))
        return list(page.items)
