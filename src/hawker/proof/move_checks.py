"""What holds of moves between nodes, whatever happened: one owner and one writer at every moment; nothing is lost, left
or forgotten once nothing is under way. Written over the stores of all nodes at once.
"""

from collections.abc import Iterable, Iterator, Mapping

from hawker.ids import AppName, MachineId, NodeId, SnapshotId
from hawker.machine import State
from hawker.node import Resources
from hawker.proof.violation import Invariant, Violation
from hawker.record.machine import BY_ORDER, EVENTS, MACHINES, MachineRecord
from hawker.record.move import (
    AWAITED,
    CLOSED_MOVES,
    COMING_SNAPSHOTS,
    GRANTS,
    INCOMING,
    MOVED,
    MOVES,
    OPEN_MOVE_OF,
    OPEN_MOVES,
    IncomingState,
    MoveState,
)
from hawker.record.volume import SNAPSHOTS, VOLUMES
from hawker.store.contract import Reader
from hawker.value_object import ValueObject
from hawker.volume.attachment import volume_id_of
from hawker.worker.capacity import kept_layer


class NodeSight(ValueObject, frozen=True, kw_only=True):
    """One node at one moment: its store, which machines run there, which volumes and root filesystems are mounted, how
    often each volume's file and each kept root filesystem was written to, by the id of volume or machine, of those that
    have one, the names of the drafts there, and which bytes of volumes' files are zeros that nobody wrote: offset and
    count of each range. `snapshots` are the files of snapshots, each with what its volume had been written."""

    node: NodeId
    reader: Reader
    running: frozenset[MachineId] = frozenset()
    mounted: frozenset[str] = frozenset()
    """Ids of volumes, and of machines for their root filesystems."""
    contents: Mapping[str, int] | None = None
    drafts: frozenset[str] = frozenset()
    """Ids of what is coming and not complete; files of that name are no volumes yet."""
    holes: Mapping[str, tuple[tuple[int, int], ...]] = {}
    snapshots: Mapping[SnapshotId, int] = {}


def taken_back(sights: Iterable[NodeSight]) -> frozenset[tuple[str, int]]:
    """Units with the generations that their granters revoked: who has one of these was away, and owns nothing."""
    moves = (move for sight in sights for _, move in sight.reader.scan(MOVES))
    return frozenset((move.unit, move.generation) for move in moves if move.reclaimed)


class Generations:
    """The owners that were seen, each under its generation: of a generation there is one, and none comes after a
    greater one."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, NodeId]] = {}

    def broken(self, sights: Iterable[NodeSight]) -> Iterator[Violation]:
        sights = tuple(sights)
        revoked = taken_back(sights)
        for sight in sights:
            for unit, generation in owned_at(sight.reader):
                if (unit, generation) in revoked:
                    continue
                known, node = self._seen.get(unit, (0, sight.node))
                if generation > known:
                    self._seen[unit] = (generation, sight.node)
                elif generation < known or node != sight.node:
                    what = f"node {sight.node} owns generation {generation}, and node {node} owned {known}"
                    yield Violation(Invariant.ONE_OWNER, unit, what)


def owned_at(reader: Reader) -> Iterator[tuple[str, int]]:
    """Which units this node may act on, each with its generation."""
    for _, machine in reader.scan(MACHINES):
        if reader.get(GRANTS, machine.id) is None:
            yield machine.id, machine.generation
    for _, volume in reader.scan(VOLUMES):
        if volume.machine is None and reader.get(GRANTS, volume.id) is None:
            yield volume.id, volume.generation


def of_moves(sights: Iterable[NodeSight]) -> Iterator[Violation]:
    """At every moment."""
    sights = tuple(sights)
    owners: dict[str, NodeId] = {}
    runs: dict[MachineId, NodeId] = {}
    revoked = taken_back(sights)
    for sight in sights:
        for unit, generation in owned_at(sight.reader):
            if (unit, generation) in revoked:
                if unit in sight.running:
                    what = f"runs at {sight.node} under generation {generation}, which was taken back"
                    yield Violation(Invariant.ONE_WRITER, unit, what)
                continue
            other = owners.setdefault(unit, sight.node)
            if other != sight.node:
                yield Violation(Invariant.ONE_OWNER, unit, f"nodes {other} and {sight.node} own it")
        for machine_id in sight.running:
            first = runs.setdefault(machine_id, sight.node)
            if first != sight.node:
                yield Violation(Invariant.ONE_WRITER, machine_id, f"runs at nodes {first} and {sight.node}")
        yield from _written(sight)
        yield from _away(sight)
        yield from _unsaid(sight)
        yield from _unheld(sight)
    yield from _turns(sights)
    yield from _unsettled(sights)


def _unsettled(sights: Iterable[NodeSight]) -> Iterator[Violation]:
    """Who asks no more whether it was taken back has it for good."""
    revoked = {(sight.node, move.id) for sight in sights for _, move in sight.reader.scan(MOVES) if move.reclaimed}
    for sight in sights:
        for _, came in sight.reader.scan(INCOMING):
            if came.settled and (came.source, came.move) in revoked:
                what = f"node {came.source} took it back, and told node {sight.node} that it never would"
                yield Violation(Invariant.SETTLED, came.unit, what)


def _unheld(sight: NodeSight) -> Iterator[Violation]:
    """A snapshot comes into room that nobody else is promised."""
    for snapshot_id, coming in sight.reader.scan(COMING_SNAPSHOTS):
        wanted = 0 if coming.arrived else coming.snapshot.size
        if snapshot_id in sight.drafts and coming.holds.disk_mib << 20 < wanted:
            yield Violation(Invariant.CAPACITY, snapshot_id, f"is copied to {sight.node}, which holds no room for it")


def _unsaid(sight: NodeSight) -> Iterator[Violation]:
    """Who may act on a volume knows what is lost of it."""
    for volume_id, holes in sight.holes.items():
        volume = sight.reader.get(VOLUMES, volume_id)
        unit = volume_id if volume is None else volume.machine or volume_id
        if volume is None or sight.reader.get(GRANTS, unit) is not None:
            continue
        lost = () if volume.damage is None else volume.damage.lost
        for at, count in holes:
            if not any(offset <= at and at + count <= offset + length for offset, length in lost):
                yield Violation(
                    Invariant.ZEROS_SAID, volume_id, f"{count} zeros at {at}, and {sight.node} lists {lost}"
                )
        if volume.damaged and volume_id in sight.mounted:
            yield Violation(Invariant.ZEROS_SAID, volume_id, "is mounted, and nobody has accepted what is lost")


def _away(sight: NodeSight) -> Iterator[Violation]:
    seen = set[AppName]()
    for _, move in sight.reader.scan(MOVES):
        if move.state is MoveState.RECLAIMING:  # ordered by an operator, whatever else moves
            continue
        if move.state in OPEN_MOVES and move.app in seen:
            yield Violation(Invariant.ONE_AWAY, move.app, f"two moves are under way at {sight.node}")
        if move.state in OPEN_MOVES:
            seen.add(move.app)


def _turns(sights: Iterable[NodeSight]) -> Iterator[Violation]:
    """Over all nodes: what moves in its app's turn is alone in it. One whose app's home was away has none."""
    seen = dict[AppName, str]()
    for sight in sights:
        for _, move in sight.reader.scan(MOVES):
            if move.state in OPEN_MOVES and move.has_turn and seen.setdefault(move.app, move.id) != move.id:
                what = f"it is the turn of moves {seen[move.app]} and {move.id} at once"
                yield Violation(Invariant.ONE_AWAY, move.app, what)


def _written(sight: NodeSight) -> Iterator[Violation]:
    """What was closed for its move is mounted by nobody there."""
    for _, move in sight.reader.scan(MOVES):
        for each in sight.mounted & {move.volume, move.machine} if move.state in CLOSED_MOVES else ():
            yield Violation(Invariant.ONE_WRITER, each or "", f"is {move.state}, and mounted at {sight.node}")


def moves_at_rest(sights: Iterable[NodeSight]) -> Iterator[Violation]:
    """When nothing is under way, and no host is gone."""
    sights = tuple(sights)
    owners = {unit: sight.node for sight in sights for unit, _ in owned_at(sight.reader)}
    for sight in sights:
        reader = sight.reader
        for _, move in reader.scan(MOVES):
            if move.state in OPEN_MOVES:
                yield Violation(Invariant.MOVE_ENDS, move.id, f"is {move.state}")
            if move.unit not in owners:
                yield Violation(Invariant.ONE_OWNER, move.unit, "is owned by nobody")
        for _, incoming in reader.scan(INCOMING):
            if incoming.state in AWAITED:
                yield Violation(Invariant.MOVE_ENDS, incoming.move, f"is {incoming.state} at {sight.node} for ever")
            elif incoming.holds != Resources():
                yield Violation(Invariant.CAPACITY, incoming.move, f"holds {incoming.holds} at {sight.node} for ever")
        for key, _ in reader.scan(OPEN_MOVE_OF):
            yield Violation(Invariant.MOVE_ENDS, key, f"counts as moving at {sight.node}")
        if sight.drafts:
            yield Violation(Invariant.NOTHING_STRAY, sight.node, f"{len(sight.drafts)} drafts are there")
        for id in _kept_at(reader) if sight.contents is not None else ():
            if id not in (sight.contents or {}):
                yield Violation(Invariant.KEPT, id, f"node {sight.node} owns it and has no file")
    yield from _signposts(sights, owners)


def _signposts(sights: Iterable[NodeSight], owners: Mapping[str, NodeId]) -> Iterator[Violation]:
    """From every node that had it, the signposts lead to who has it."""
    readers = {sight.node: sight.reader for sight in sights}
    for node, reader in readers.items():
        accepted = (each for _, each in reader.scan(INCOMING) if each.state is IncomingState.ACCEPTED)
        had = {record.unit for record in accepted} | {move.unit for _, move in reader.scan(MOVES)}
        for unit in sorted(had):
            at, steps = node, 0
            while owners.get(unit) != at and steps <= len(readers):
                post = readers[at].get(MOVED, unit) if at in readers else None
                if post is None:
                    yield Violation(Invariant.FOUND, unit, f"asked at node {node}: node {at} says that it is not there")
                    break
                at, steps = post.to, steps + 1


def _kept_at(reader: Reader) -> Iterator[str]:
    """What has a file at its owner: volumes, and machines that keep their root filesystem and have had one."""
    yield from (volume.id for _, volume in reader.scan(VOLUMES))
    yield from (each.id for _, each in reader.scan(MACHINES) if each.running is not None and kept_layer(each))


def forgotten_writes(written: Mapping[str, int], acknowledged: Mapping[str, int]) -> Iterator[Violation]:
    """While a machine writes: each write finds what was written before."""
    for id, count in written.items():
        if count <= acknowledged.get(id, 0):
            what = f"write {count} follows write {acknowledged[id]}: what lies between is lost"
            yield Violation(Invariant.KEPT, id, what)


def lost_writes(sights: Iterable[NodeSight], acknowledged: Mapping[str, int]) -> Iterator[Violation]:
    """At rest: each volume and each kept root filesystem has at least what its machine was told is on disk."""
    for sight in sights:
        for id in _kept_at(sight.reader):
            has, least = (sight.contents or {}).get(id, 0), acknowledged.get(id, 0)
            if has < least:
                what = f"{least} writes were acknowledged, and at node {sight.node} it has {has}"
                yield Violation(Invariant.KEPT, id, what)


def stopped_again(reader: Reader, machine: MachineId) -> Iterator[Violation]:
    """Of a machine that nothing but its moves stops: from each order of a move on it was stopped once at the most, also
    when the move was aborted and the machine started again."""
    move, stops = "", 0
    for _, event in reader.scan(EVENTS, f"{machine}/"):
        if (event.type, event.status) == ("migrate", "preparing"):
            move, stops = event.id, 0
        elif move and (event.type, event.status) == ("stop", "stopping"):
            stops += 1
            if stops > 1:
                yield Violation(Invariant.OFF_ONCE, machine, f"was stopped {stops} times for the move of event {move}")


def went_back_again(sights: Iterable[NodeSight]) -> Iterator[Violation]:
    """At every moment: a machine that did not start goes to where it came from, once for each time it came, and never
    because it does not start where it went back to."""
    moves = {move.id: (sight.node, move) for sight in sights for _, move in sight.reader.scan(MOVES)}
    seen = set[str]()
    for node, back in moves.values():
        if not back.back_of or back.state not in (MoveState.GRANTED, MoveState.DONE):
            continue
        source, came = moves.get(back.back_of, (back.to, back))
        if back.back_of in seen:
            yield Violation(Invariant.GOES_BACK, back.unit, f"went back from {node} twice after move {back.back_of}")
        elif came.back_of and came is not back:
            yield Violation(Invariant.GOES_BACK, back.unit, f"went back to {node}, and from there again")
        elif (source, came.to) != (back.to, node) and came is not back:
            yield Violation(Invariant.GOES_BACK, back.unit, f"came from {source}, and went back to {back.to}")
        seen.add(back.back_of)


def stays_down(sights: Iterable[NodeSight]) -> Iterator[Violation]:
    """At rest, of machines that ran before: none is where it came to and never started."""
    for sight in sights:
        for _, machine in sight.reader.scan(MACHINES):
            if machine.state is State.FAILED and machine.running is None:
                yield Violation(Invariant.GOES_BACK, machine.id, f"does not start at {sight.node}, and stays there")


def forgotten_orders(sights: Iterable[NodeSight], machine: MachineRecord) -> Iterator[Violation]:
    """At rest: every node that had the machine knows what its order became, and fills it no second time."""
    order = f"{machine.app}/{machine.order}"
    for sight in sights:
        moved = any(move.machine == machine.id for _, move in sight.reader.scan(MOVES))
        pointer = sight.reader.get(BY_ORDER, order)
        if pointer is None and (moved or sight.reader.get(MACHINES, machine.id) is not None):
            yield Violation(Invariant.FOUND, order, f"node {sight.node} had {machine.id}, and would fill it again")
        elif pointer is not None and pointer.id != machine.id:
            yield Violation(Invariant.FOUND, order, f"node {sight.node} filled it with {pointer.id}, not {machine.id}")


def not_the_same(before: MachineRecord, after: MachineRecord) -> Iterator[Violation]:
    """What a machine keeps wherever it goes."""
    kept = ("name", "app", "version", "order", "created_at")
    for name in kept:
        if getattr(before, name) != getattr(after, name):
            what = f"{name} was {getattr(before, name)} and is {getattr(after, name)}"
            yield Violation(Invariant.SAME, before.id, what)
    if before.network.private_ip != after.network.private_ip:
        yield Violation(Invariant.SAME, before.id, "has another address")
    if before.config.metadata != after.config.metadata or volume_id_of(before.config) != volume_id_of(after.config):
        yield Violation(Invariant.SAME, before.id, "has other metadata or another volume")
    if after.last_event <= before.last_event and after.generation > before.generation:
        yield Violation(Invariant.SAME, before.id, "its events do not go on")


def lost_snapshots(sights: Iterable[NodeSight], taken: Mapping[SnapshotId, int]) -> Iterator[Violation]:
    """At every moment: some node has what each snapshot was taken of, and a record that says so."""
    sights = tuple(sights)
    for snapshot_id, content in taken.items():
        there = [each for each in sights if each.reader.get(SNAPSHOTS, snapshot_id) is not None]
        if not any(each.snapshots.get(snapshot_id) == content for each in there):
            yield Violation(Invariant.KEPT, snapshot_id, "no node has what it was taken of")


def snapshots_at_rest(sights: Iterable[NodeSight], taken: Iterable[SnapshotId]) -> Iterator[Violation]:
    """When nothing is under way: a snapshot is where its volume is, and nowhere else."""
    sights = tuple(sights)
    volumes = {volume.id: sight.node for sight in sights for _, volume in sight.reader.scan(VOLUMES)}
    for snapshot_id in taken:
        for sight in sights:
            record = sight.reader.get(SNAPSHOTS, snapshot_id)
            if record is not None and volumes.get(record.volume) != sight.node:
                yield Violation(Invariant.MOVE_ENDS, snapshot_id, f"stays at {sight.node}, and its volume has gone")
        for sight in sights:
            if sight.reader.get(COMING_SNAPSHOTS, snapshot_id) is not None:
                yield Violation(Invariant.MOVE_ENDS, snapshot_id, f"is on its way to {sight.node} for ever")
