"""The edge's end of `edge.sock`: it goes on without the worker, and begins with what was kept."""

from collections.abc import Iterable
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest

from hawker.clock import ManualClock, SystemClock
from hawker.edge.worker_link import AWAY, WorkerLink
from hawker.feed import (
    PART_MACHINES,
    AllMachines,
    AskReport,
    CloseMachine,
    EdgeInbox,
    GatePlace,
    MachineGone,
    MachineRoute,
    SealedCertificate,
    frame,
    in_parts,
)
from hawker.host.own_user import WRITES
from hawker.ids import AppName, MachineId, NodeId
from hawker.route_question import AskRoute
from tests.edge.edge_kit import PlayedHost, route
from tests.ports import free_port
from tests.waiting import eventually


class Heard:
    """Keeps `FeedReader`."""

    def __init__(self) -> None:
        self.machines: list[MachineId] = []
        self.certificates: list[SealedCertificate] = []

    def whole(self, message: AllMachines) -> None:
        self.more(message.machines)

    def more(self, machines: Iterable[MachineRoute]) -> None:
        self.machines += [each.id for each in machines if each.id not in self.machines]

    def ended(self, gone: Iterable[MachineId], certificates: Iterable[SealedCertificate]) -> None:
        self.machines = [each for each in self.machines if each not in gone]
        self.certificates = list(certificates)

    def changed(self, machine: MachineRoute) -> None:
        self.machines.append(machine.id)

    def gone(self, machine_id: MachineId) -> None:
        self.machines.remove(machine_id)

    def close(self, message: CloseMachine) -> None: ...

    def ask(self, message: AskReport) -> None: ...

    def explain(self, message: AskRoute) -> None: ...


async def test_an_edge_process_that_begins_without_a_worker_knows_what_was_told_last(host: PlayedHost) -> None:
    machine = route(free_port(), 1)
    await host.publish(machine)
    kept, heard = host.folder / WRITES / "routes", Heard()
    await eventually(lambda: kept.exists() and machine.id.encode() in kept.read_bytes())
    (host.folder / "edge.sock").unlink()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(WorkerLink(host.folder, SystemClock()).serve, heard)
        await eventually(lambda: heard.machines == [machine.id])
        tasks.cancel_scope.cancel()


async def test_a_worker_that_is_away_is_looked_for_less_often_the_longer_it_is(tmp_path: Path) -> None:
    pauses = list[float]()

    class Noting(ManualClock):
        async def sleep(self, seconds: float) -> None:
            pauses.append(seconds)
            await super().sleep(seconds)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(WorkerLink(tmp_path, Noting()).serve, Heard())
        await eventually(lambda: pauses[-1:] == [0.5])
        tasks.cancel_scope.cancel()
    assert pauses[:20] == [0.1] * 20, "a daemon that is started again is found at once"
    assert pauses == sorted(pauses)


def many(count: int) -> list[MachineRoute]:
    """Of other hosts, with services of their own that are alike."""
    gate = GatePlace(node=NodeId("b" * 8), host="10.0.0.2", port=4291)
    return [msgspec.structs.replace(route(80, 1), gate=gate) for _ in range(count)]


def certificate(number: int) -> SealedCertificate:
    return SealedCertificate(hostname=f"{number}.example.com", app=AppName("shop"), sealed=b"sealed")


async def test_all_machines_in_parts_are_known_and_the_others_gone_once_the_last_part_is_there(
    host: PlayedHost,
) -> None:
    stays, goes, fresh = route(1, 1), route(2, 1), many(2 * PART_MACHINES)
    await host.publish(stays, goes)
    heard = host.edge._routes.machines
    assert host.worker.introduced == 1
    before = heard[stays.id]
    whole = host.worker.whole()
    *parts, last = in_parts(whole, [*fresh, stays], [certificate(1)])
    for part in parts:
        host.worker.say(part)
    await eventually(lambda: len(heard) == len(fresh) + 2)
    assert goes.id in heard
    host.worker.say(last)
    await eventually(lambda: goes.id not in heard)
    assert heard.keys() == {each.id for each in (*fresh, stays)}
    services = {id(heard[each.id].services) for each in fresh}
    gates = {id(heard[each.id].gate) for each in fresh}
    assert len(services) == len(gates) == 1, "what is equal is there once"
    assert heard[stays.id] is before, "what is said again takes no new memory"
    host.worker.say(whole)  # as a worker says it that knows of no parts
    await eventually(lambda: heard.keys() == {stays.id, goes.id})


async def test_a_machine_that_goes_while_all_are_told_is_gone_at_the_end(host: PlayedHost) -> None:
    goes, fresh = route(free_port(), 1), many(2 * PART_MACHINES)
    await host.publish(goes)
    heard = host.edge._routes.machines
    *parts, last = in_parts(host.worker.whole(), fresh, ())
    for part in (*parts, MachineGone(id=goes.id), last):
        host.worker.say(part)
    await eventually(lambda: heard.keys() == {each.id for each in fresh})


async def test_clients_are_served_between_parts_that_arrive_at_once(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, before, machines = 0, list[int](), many(20 * PART_MACHINES)
    await eventually(lambda: host.worker.introduced == 1)
    more = host.edge.more

    async def client() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    def noting(part: Iterable[MachineRoute]) -> None:
        if there := list(part):  # the beginning has none, and may come with the first part
            before.append(turns)
        more(there)

    monkeypatch.setattr(host.edge, "more", noting)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client)
        for part in in_parts(host.worker.whole(), machines, ()):
            host.worker.say(part)
        await eventually(lambda: len(host.edge._routes.machines) == len(machines))
        tasks.cancel_scope.cancel()
    assert len(set(before)) == len(before) >= 20


def link_at(folder: Path, kept: bytes) -> tuple[WorkerLink, Heard]:
    """One that begins without a worker, with what one before it has kept."""
    (folder / WRITES).mkdir()
    (folder / WRITES / "routes").write_bytes(kept)
    link, heard = WorkerLink(folder, SystemClock()), Heard()
    link._begin_with_kept(heard)
    return link, heard


async def test_routes_kept_in_parts_are_what_a_new_process_begins_with(tmp_path: Path) -> None:
    machines, sealed = many(PART_MACHINES + 1), [certificate(number) for number in range(30)]
    parts = in_parts(AllMachines(machines=(), region="mad"), machines, sealed)
    link, heard = link_at(tmp_path, b"".join(map(frame, parts)))
    assert heard.machines == [each.id for each in machines] and heard.certificates == sealed
    file = tmp_path / WRITES / "routes"
    file.unlink()
    await link._write()
    said = list(EdgeInbox().read(file.read_bytes()))
    assert isinstance(said[0], AllMachines) and said[0].region == "mad"
    assert said == list(in_parts(AllMachines(machines=(), region="mad"), machines, sealed))


@pytest.mark.parametrize("count", [0, 1, PART_MACHINES + 1])
async def test_routes_kept_by_an_older_version_are_read_too(tmp_path: Path, count: int) -> None:
    machines = many(count)
    whole = AllMachines(machines=tuple(machines), certificates=(certificate(1),))
    _, heard = link_at(tmp_path, msgspec.msgpack.encode(whole))
    assert heard.machines == [each.id for each in machines] and heard.certificates == [certificate(1)]


async def test_routes_kept_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    for number, kept in enumerate((b"", b"\x00", b"\xff" * 10, b"\x00\x00\x00\x01x")):
        (tmp_path / str(number)).mkdir()
        assert link_at(tmp_path / str(number), kept)[1].machines == []


async def test_a_wake_without_a_worker_says_so(host: PlayedHost) -> None:
    assert await WorkerLink(host.folder, SystemClock()).wake(MachineId("1"), rested=False) == AWAY
