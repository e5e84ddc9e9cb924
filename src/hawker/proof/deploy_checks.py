"""What holds of deploys at the app's home, whatever happened: one machine is in one slot, the release command ended
well before any machine changed, and a deploy that has ended left each machine at its release or as it was.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeAlias

from hawker.config import MachineConfig
from hawker.deploys.plan import budget
from hawker.deploys.releases import ENDED, ReleaseStatus
from hawker.fsm import journal
from hawker.ids import MachineId, NodeId
from hawker.machine import GONE
from hawker.proof.violation import Invariant, Violation
from hawker.record.app import RELEASES
from hawker.record.deploy import (
    DEPLOY_SLOTS,
    DEPLOYS,
    DeployRecord,
    SlotKind,
    SlotRecord,
    SlotState,
    deploy_key,
    deploy_resource,
)
from hawker.record.machine import MACHINES, MachineRecord
from hawker.store.contract import Reader
from hawker.value_object import ValueObject

RELEASE = "fly_release_version"
_CHANGED = frozenset({SlotState.CHANGING, SlotState.PROVING, SlotState.DONE})
_WELL = frozenset({SlotState.DONE, SlotState.SKIPPED})
_MAKES = frozenset({SlotKind.UPDATE, SlotKind.CREATE})
_BEGUN = frozenset({SlotState.CHANGING, SlotState.RETURNING})
_ABORTED = frozenset({ReleaseStatus.ROLLED_BACK, ReleaseStatus.INTERRUPTED, ReleaseStatus.FAILED})
_Find: TypeAlias = Callable[[str], MachineRecord | None]


def of_deploys(reader: Reader) -> Iterator[Violation]:
    """At every moment between two transactions."""
    slots = _slots(reader)
    for key, deploy in reader.scan(DEPLOYS):
        seen: dict[str, int] = {}
        for slot in slots[key]:
            other = seen.setdefault(slot.machine, slot.number) if slot.machine else slot.number
            if other != slot.number:
                what = f"is in slots {other} and {slot.number} of {key}"
                yield Violation(Invariant.ONE_SLOT, slot.machine, what)
        yield from _command(key, deploy, slots[key])
        release = reader.get(RELEASES, key)
        if release is not None and (deploy.ended_at is not None) != (release.status in ENDED):
            what = f"its release is {release.status}, and it ended at {deploy.ended_at}"
            yield Violation(Invariant.DEPLOYED, key, what)


def deploys_at_rest(reader: Reader, later: Collection[str] = ()) -> Iterator[Violation]:
    """When nothing is under way; machines of `later` will still change. Of each app the newest deploy counts: those
    before it are what it began with."""
    newest = {key.partition("/")[0]: (key, deploy) for key, deploy in reader.scan(DEPLOYS)}
    slots = _slots(reader)
    for app, (key, deploy) in newest.items():
        if journal.active(reader, deploy_resource(app)) is not None:
            continue
        release = reader.get(RELEASES, key)
        if deploy.ended_at is None or release is None:
            yield Violation(Invariant.DEPLOYED, key, "nobody works on it, and it has not ended")
            continue
        for slot in slots[key]:
            if slot.machine not in later:
                yield from _ended(key, deploy, slot, release.status, lambda name: reader.get(MACHINES, MachineId(name)))


def _ended(key: str, deploy: DeployRecord, slot: SlotRecord, status: str, find: _Find) -> Iterator[Violation]:
    machine = find(slot.machine) if slot.machine else None
    if status == ReleaseStatus.COMPLETE:
        yield from _completed(key, deploy, slot, machine)
    elif status == ReleaseStatus.ROLLED_BACK:
        yield from _taken_back(key, slot, machine)


def _command(key: str, deploy: DeployRecord, slots: list[SlotRecord]) -> Iterator[Violation]:
    if deploy.command is None or deploy.command.exit_code == 0:
        return
    for slot in slots:
        if slot.state in _CHANGED:
            what = f"slot {slot.number} is {slot.state}, and its release command ended with {deploy.command.exit_code}"
            yield Violation(Invariant.DEPLOYED, key, what)


def _completed(key: str, deploy: DeployRecord, slot: SlotRecord, machine: MachineRecord | None) -> Iterator[Violation]:
    if slot.state not in _WELL:
        yield Violation(Invariant.DEPLOYED, key, f"is complete, and slot {slot.number} is {slot.state}")
    elif slot.state is SlotState.DONE and machine is not None and slot.kind in _MAKES:
        found = _release(machine.config)
        if found is not None and int(found) < deploy.version:
            yield Violation(Invariant.DEPLOYED, machine.id, f"is of release {found}, and {key} is complete")
    elif slot.state is SlotState.DONE and machine is not None:
        yield Violation(Invariant.DEPLOYED, machine.id, f"is there, and {key} was to destroy it")


def _taken_back(key: str, slot: SlotRecord, machine: MachineRecord | None) -> Iterator[Violation]:
    if slot.state is not SlotState.RETURNED or machine is None:
        return
    if slot.before is None:
        yield Violation(Invariant.DEPLOYED, machine.id, f"was made by {key}, which was taken back")
    elif _release(machine.config) not in (None, _release(slot.before.config)):
        what = f"is of release {_release(machine.config)}, and {key} was taken back"
        yield Violation(Invariant.DEPLOYED, machine.id, what)


def _release(config: MachineConfig) -> str | None:
    """None for what somebody else made of the machine meanwhile."""
    return (config.metadata or {}).get(RELEASE)


def _slots(reader: Reader) -> defaultdict[str, list[SlotRecord]]:
    """By the key of their deploy."""
    found: defaultdict[str, list[SlotRecord]] = defaultdict(list)
    for key, slot in reader.scan(DEPLOY_SLOTS):
        found[key.rpartition("/")[0]].append(slot)
    return found


# Of a fleet, where machines are of several nodes and a deploy may have gone on at another node than its app's home.


class DeploySight(ValueObject, frozen=True):
    """What an observer sees of an app at all nodes at one moment. `running` are machines that run, `serving` those of
    them that are in routing and whose program answers its checks; `steady` are nodes that have been up for a while."""

    app: str
    """The name of the app that is deployed."""
    readers: Mapping[NodeId, Reader]
    running: frozenset[MachineId]
    steady: frozenset[NodeId] = frozenset()
    serving: frozenset[MachineId] = frozenset()

    def machine(self, name: str) -> MachineRecord | None:
        return next((each for each in self.machines() if each.id == name), None)

    def machines(self) -> Iterator[MachineRecord]:
        for reader in self.readers.values():
            yield from (record for _, record in reader.scan(MACHINES))

    def newest(self) -> Iterator[tuple[NodeId, Reader, str, DeployRecord]]:
        """The app's newest deploy, as each node that knows of it has it, unless it has ended."""
        for node, reader in self.readers.items():
            for key, deploy in reader.scan(DEPLOYS, f"{self.app}/", limit=1, reverse=True):
                if deploy.ended_at is None:
                    yield node, reader, key, deploy


class Serving:
    """What was seen so far of the machines of deploys: those that served when one began are to go on serving."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._served: dict[str, frozenset[str]] = {}

    def look(self, sight: DeploySight) -> Iterator[Violation]:
        known = max(sight.newest(), key=lambda each: (each[2], each[3].term, each[3].serial), default=None)
        if known is None:
            return
        _, reader, key, deploy = known
        slots = _slots_of(reader, key)
        if key not in self._served:
            self._served[key] = frozenset(
                slot.machine
                for slot in slots
                if slot.before is not None
                and slot.before.started
                and not slot.cordoned
                and (slot.machine in sight.serving or slot.state is not SlotState.WAITING)
            )
        if deploy.strategy in ("rolling", "canary"):
            yield from self._more_away(sight, key, slots)
        elif deploy.strategy == "bluegreen":
            yield from self._fewer_serve(sight, key, slots)

    def _more_away(self, sight: DeploySight, key: str, slots: list[SlotRecord]) -> Iterator[Violation]:
        """More machines of a group, or of its part in a region, are away at once than a rolling deploy may take away,
        or all of them. Those of nodes that are not steady are counted out, and so are those that it has not touched,
        and those that have proven themselves and do not pass their checks any more."""
        steady = {each.id for node in sight.steady for _, each in sight.readers[node].scan(MACHINES)}
        groups: defaultdict[tuple[str, str], list[SlotRecord]] = defaultdict(list)
        for slot in slots:
            if slot.kind is SlotKind.UPDATE and slot.launch:
                groups[slot.group, ""].append(slot)
                groups[slot.group, slot.region or ""].append(slot)
        for (group, region), mine in groups.items():
            touched = [slot for slot in mine if slot.machine in steady and slot.machine in self._served[key]]
            away = [slot.machine for slot in touched if _is_away(slot, sight)]
            where = f"{group} in {region}" if region else group
            if len(away) > budget(self._share, len(mine)):
                what = f"{len(away)} of {len(mine)} machines of group {where} are away: {', '.join(away)}"
                yield Violation(Invariant.BUDGET, key, what)
            if not region and len(touched) == len(mine) > 1 and len(away) == len(mine):
                yield Violation(Invariant.BUDGET, key, f"no machine of group {group} serves")

    def _fewer_serve(self, sight: DeploySight, key: str, slots: list[SlotRecord]) -> Iterator[Violation]:
        """As many machines of a group serve as did when it began, of one release or the other. What is at nodes that
        are not steady counts as if it served."""
        at = {each.id: node for node, reader in sight.readers.items() for _, each in reader.scan(MACHINES)}
        for group in {slot.group for slot in slots}:
            mine = [slot for slot in slots if slot.group == group and slot.machine]
            served = [slot for slot in mine if slot.kind is SlotKind.DESTROY and slot.machine in self._served[key]]
            serve = [slot.machine for slot in mine if slot.machine in sight.serving]
            left = [slot.machine for slot in mine if slot.machine not in serve]
            unknown = [each for each in left if at.get(MachineId(each)) not in sight.steady]
            if len(serve) + len(unknown) < len(served):
                what = f"{len(serve)} machines of group {group} serve, and {len(served)} did when it began"
                yield Violation(Invariant.BUDGET, key, what)


def _is_away(slot: SlotRecord, sight: DeploySight) -> bool:
    if slot.state in (SlotState.CHANGING, SlotState.PROVING, SlotState.RETURNING):
        return slot.machine not in sight.serving
    return slot.state is not SlotState.WAITING and slot.machine not in sight.running


def proven(sight: DeploySight, hopeless: Callable[[int, str | None], bool]) -> Iterator[Violation]:
    """No machine is done of a release that never passes there: `hopeless` is asked for a version and a region."""
    for reader in sight.readers.values():
        for key, deploy in reader.scan(DEPLOYS, f"{sight.app}/", limit=1, reverse=True):
            if deploy.strategy == "immediate":
                continue
            for slot in _slots_of(reader, key):
                makes = slot.launch and slot.kind in (*_MAKES, SlotKind.CANARY)
                if makes and slot.state is SlotState.DONE and hopeless(deploy.version, slot.region):
                    yield Violation(Invariant.GATED, key, f"slot {slot.number} is done, and never passed its gates")


def refused(sight: DeploySight, home: NodeId, labels: Collection[str]) -> Iterator[Violation]:
    """No release of an order that was refused is anywhere, and no number was used up for one. `labels` are those of
    the orders."""
    for node, reader in sight.readers.items():
        for key, release in reader.scan(RELEASES, f"{sight.app}/"):
            if release.description in labels:
                yield Violation(Invariant.REFUSED, key, f"is at {node}, and its order was refused")
    versions = [release.version for _, release in sight.readers[home].scan(RELEASES, f"{sight.app}/")]
    if versions != list(range(versions[0] if versions else 0, versions[-1] + 1 if versions else 0)):
        yield Violation(Invariant.REFUSED, sight.app, f"has the releases {versions}")


class OwnExits:
    """Machines whose program ended by itself, which are to run again within `within_s` seconds, whatever a deploy does
    meanwhile. Those of hosts that are not steady all that time are counted out."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._left: dict[MachineId, float] = {}

    def exited(self, machine: MachineId, now: float) -> None:
        self._left[machine] = now

    def look(self, sight: DeploySight, now: float) -> Iterator[Violation]:
        at = {each.id: (node, each) for node, reader in sight.readers.items() for _, each in reader.scan(MACHINES)}
        for machine, since in list(self._left.items()):
            node, record = at.get(machine, (None, None))
            given_up = record is None or record.state in GONE or node not in sight.steady
            if machine in sight.running or given_up:
                del self._left[machine]
            elif now - since > self._within_s:
                del self._left[machine]
                what = f"ended by itself {now - since:.0f} s ago, and is {record.state if record else 'gone'}"
                yield Violation(Invariant.OWN_LIFE, machine, what)


class Coordinators:
    """What was seen so far of who begins to change machines."""

    def __init__(self) -> None:
        self._seen: dict[tuple[NodeId, str], tuple[int, int, frozenset[tuple[int, SlotState]]]] = {}
        self._greatest: dict[str, int] = {}

    def look(self, sight: DeploySight) -> Iterator[Violation]:
        """A node begins to change a machine in an earlier term than another one did before."""
        for node, reader, key, deploy in sight.newest():
            term, serial, before = self._seen.get((node, key), (0, 0, frozenset()))
            if (term, serial) == (deploy.term, deploy.serial):
                continue
            slots = _slots_of(reader, key)
            begun = frozenset((slot.number, slot.state) for slot in slots if slot.state in _BEGUN)
            self._seen[node, key] = deploy.term, deploy.serial, begun
            if deploy.coordinator != node or term != deploy.term or begun <= before:
                continue  # it follows, or has just begun with what another one had done
            greatest = self._greatest.get(key, 0)
            if deploy.term < greatest:
                what = f"{node} begins to change a machine in term {deploy.term}, after term {greatest}"
                yield Violation(Invariant.ONE_COORDINATOR, key, what)
            self._greatest[key] = max(greatest, deploy.term)


def _slots_of(reader: Reader, key: str) -> list[SlotRecord]:
    return [slot for _, slot in reader.scan(DEPLOY_SLOTS, f"{key}/")]


def deploys_over(
    sight: DeploySight,
    home: NodeId,
    accepted: Collection[int],
    aborted: Collection[int],
    bad: Collection[int],
) -> Iterator[Violation]:
    """When nothing is under way anywhere. `accepted` and `aborted` are the versions of deploys of which that was
    answered, `bad` those whose machines pass no gate."""
    reader, app = sight.readers[home], sight.app
    slots = _slots(reader)
    statuses = {each.version: each.status for _, each in reader.scan(RELEASES, f"{app}/")}
    deploys = {each.version: each for _, each in reader.scan(DEPLOYS, f"{app}/")}
    for version in accepted:
        if version not in statuses or (version in deploys and deploys[version].ended_at is None):
            yield Violation(Invariant.KEPT, deploy_key(app, version), "was accepted, and is not there or has no end")
    for version in aborted:
        if statuses.get(version) not in _ABORTED:
            what = f"its end was acknowledged, and it is {statuses.get(version)}"
            yield Violation(Invariant.KEPT, deploy_key(app, version), what)
    newest = max(deploys, default=0)
    for version, deploy in deploys.items():
        key = deploy_key(app, version)
        yield from _made_once(sight, key, version, slots[key])
        done = [slot for slot in slots[key] if slot.launch and slot.kind in _MAKES and slot.state is SlotState.DONE]
        if version in bad and done and statuses[version] == ReleaseStatus.COMPLETE:
            yield Violation(Invariant.GATED, key, f"is complete, and slot {done[0].number} never passed")
        for slot in slots[key] if version == newest else ():
            yield from _ended(key, deploy, slot, statuses[version], sight.machine)
    yield from as_before(sight, home)


def as_before(sight: DeploySight, home: NodeId) -> Iterator[Violation]:
    """At every moment until the next deploy: what the newest one took back has the very config from before, and so has
    what it never changed."""
    reader = sight.readers[home]
    for key, _ in reader.scan(DEPLOYS, f"{sight.app}/", limit=1, reverse=True):
        release = reader.get(RELEASES, key)
        if release is None or release.status != ReleaseStatus.ROLLED_BACK:
            return
        machines = {machine.id: machine for machine in sight.machines()}
        for slot in _slots_of(reader, key):
            machine = machines.get(MachineId(slot.machine))
            if slot.before is None or machine is None or slot.state not in (SlotState.RETURNED, SlotState.WAITING):
                continue
            if machine.config != slot.before.config:
                what = f"has another config than before {key}, which was taken back"
                yield Violation(Invariant.DEPLOYED, machine.id, what)


def _made_once(sight: DeploySight, key: str, version: int, slots: list[SlotRecord]) -> Iterator[Violation]:
    """Nothing is left of a deploy that no slot of it has."""
    known = {slot.machine for slot in slots}
    for machine in sight.machines():
        if _release(machine.config) == str(version) and machine.id not in known and machine.state not in GONE:
            yield Violation(Invariant.FILLED_ONCE, machine.id, f"is of {key}, and no slot of it has it")
