"""What holds of deploys at the app's home, whatever happened: one machine is in one slot, the release command ended
well before any machine changed, and a deploy that has ended left each machine at its release or as it was.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator

from hawker.config import MachineConfig
from hawker.deploys.releases import ENDED, ReleaseStatus
from hawker.fsm import journal
from hawker.ids import MachineId
from hawker.proof.violation import Invariant, Violation
from hawker.record.app import RELEASES
from hawker.record.deploy import DEPLOY_SLOTS, DEPLOYS, DeployRecord, SlotKind, SlotRecord, SlotState, deploy_resource
from hawker.record.machine import MACHINES, MachineRecord
from hawker.store.contract import Reader

RELEASE = "fly_release_version"
_CHANGED = frozenset({SlotState.CHANGING, SlotState.PROVING, SlotState.DONE})
_WELL = frozenset({SlotState.DONE, SlotState.SKIPPED})
_MAKES = frozenset({SlotKind.UPDATE, SlotKind.CREATE})


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
            machine = reader.get(MACHINES, MachineId(slot.machine)) if slot.machine else None
            if slot.machine in later:
                continue
            if release.status == ReleaseStatus.COMPLETE:
                yield from _completed(key, deploy, slot, machine)
            elif release.status == ReleaseStatus.ROLLED_BACK:
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
