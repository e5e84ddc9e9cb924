"""What the worker tells the edge of its machines, and what it does for it: starts, rests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.abc import ByteStream
from msgspec.structs import replace

from hawker.config import PUBLISH
from hawker.errors import Conflict, LeaseHeld
from hawker.feed import (
    API_APP,
    API_SOCKET,
    CERTIFICATE_KEY,
    EVERYWHERE,
    NODE_IDENTITY,
    PROCESSES,
    AllMachines,
    AppAddress,
    EdgeAnswer,
    EdgeInbox,
    EdgeReport,
    GatePlace,
    MachineChanged,
    MachineGone,
    MachineRoute,
    MoreMachines,
    RestMachine,
    RouteHealth,
    ToEdge,
    ToWorker,
    frame,
    in_parts,
)
from hawker.ids import AppName, InstanceId, MachineId, NodeId
from hawker.machine import State
from hawker.record.app import org_of
from hawker.record.machine import MACHINES, CheckResult, MachineRecord, MachineTarget
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.worker.edge_door import EdgeDoor, EdgeHost, autostarts, idle_s, published_at, worst
from hawker.worker.ip_assignments import IpRequest
from tests.certificates import issued
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
HOST = EdgeHost(folder=Path("/nowhere"), addresses=("127.0.0.1",), region="ams", own=True, idle_s=300.0)
WEB = {"internal_port": 8080, "ports": [{"port": 80}]}


def door_of(worker: SimWorker, host: EdgeHost = HOST) -> EdgeDoor:
    parts = worker.parts
    deps = parts.deps
    return EdgeDoor(
        deps.store,
        parts.changes,
        parts.health.of,
        parts.operations,
        deps.edge,
        deps.certificates,
        deps.logs,
        deps.clock,
        host,
    )


def told(worker: SimWorker) -> list[MachineRoute]:
    return list(door_of(worker).whole().machines)


async def test_a_started_machine_is_told_with_its_instance_and_addresses(worker: SimWorker) -> None:
    machine_id = await worker.started(services=[WEB], metadata={PUBLISH: "*", "hawker_idle_s": "12"})
    (machine,) = told(worker)
    record = worker.record(machine_id)
    assert record.running is not None and machine.instance == record.running.instance_id
    assert machine.publish == EVERYWHERE and machine.idle_s == 12.0 and machine.state is State.STARTED
    assert machine.hosts[-1] == record.network.private_ip and machine.org == org_of(worker.store, APP)


async def test_a_machine_without_services_is_not_told(worker: SimWorker) -> None:
    await worker.started()
    assert told(worker) == []


async def test_a_machine_rests_only_as_the_instance_that_was_meant(worker: SimWorker) -> None:
    machine_id = MachineId(await worker.started(services=[WEB]))
    operations, record = worker.parts.operations, worker.record(machine_id)
    assert record.running is not None
    with pytest.raises(Conflict, match="another instance"):
        await operations.rest(machine_id, InstanceId("other"), suspend=False)
    await operations.rest(machine_id, record.running.instance_id, suspend=False)
    await worker.reaches(machine_id, State.STOPPED)
    with pytest.raises(Conflict):
        await operations.rest(machine_id, record.running.instance_id, suspend=False)
    assert "edge" in [event.source for event in (await worker.get(machine_id)).events]


@pytest.mark.parametrize("suspend", [False, True])
async def test_a_machine_is_told_to_rest_until_it_is_started_or_somebody_stops_it(
    worker: SimWorker, suspend: bool
) -> None:
    machine_id = MachineId(await worker.started(services=[WEB]))
    operations, target = worker.parts.operations, MachineTarget(worker.record(machine_id).app, machine_id, None)

    async def rest() -> None:
        running = worker.record(machine_id).running
        assert running is not None
        await operations.rest(machine_id, running.instance_id, suspend=suspend)
        await worker.at_rest()
        assert told(worker)[0].rested

    await rest()
    await operations.start(target, rested=True)
    await worker.reaches(machine_id, State.STARTED)
    assert not told(worker)[0].rested
    with pytest.raises(Conflict, match="does not rest"):
        await operations.start(target, rested=True)
    await rest()
    await operations.stop(target, signal=None, timeout_s=None)
    await worker.reaches(machine_id, State.STOPPED)
    assert not told(worker)[0].rested
    with pytest.raises(Conflict, match="does not rest"):
        await operations.start(target, rested=True)


async def test_a_machine_that_ends_by_itself_or_is_stopped_does_not_rest(worker: SimWorker) -> None:
    machine_id = MachineId(await worker.stopped(services=[WEB]))
    assert worker.record(machine_id).rested is None and not told(worker)[0].rested


async def test_a_machine_that_a_client_holds_does_not_rest(worker: SimWorker) -> None:
    machine_id = MachineId(await worker.started(services=[WEB]))
    await worker.lease(machine_id, 60)
    running = worker.record(machine_id).running
    assert running is not None
    with pytest.raises(LeaseHeld):
        await worker.parts.operations.rest(machine_id, running.instance_id, suspend=True)
    assert worker.record(machine_id).state is State.STARTED


@pytest.mark.parametrize(
    ("asked", "addresses", "expected"),
    [
        ("", ("0.0.0.0",), ""),
        ("*", (), ""),
        ("*", ("0.0.0.0", "::"), "*"),
        ("127.0.0.1", ("0.0.0.0",), "127.0.0.1"),
        ("127.0.0.1", ("127.0.0.1",), "127.0.0.1"),
        ("::1", ("0.0.0.0",), ""),
        ("192.0.2.1", ("127.0.0.1",), ""),
        ("nonsense", ("0.0.0.0",), ""),
    ],
)
def test_ports_are_published_where_the_node_allows(asked: str, addresses: tuple[str, ...], expected: str) -> None:
    assert published_at(asked, addresses) == expected


def test_the_worst_check_counts() -> None:
    results = [CheckResult(name, name, "", 0.0) for name in ("passing", "warning", "critical")]
    assert [worst(results[:count]) for count in range(4)] == [
        RouteHealth.PASSING,
        RouteHealth.PASSING,
        RouteHealth.UNASKED,
        RouteHealth.CRITICAL,
    ]


async def test_words_of_the_config_about_waking_and_rest(worker: SimWorker) -> None:
    async def made(**config: object) -> MachineRecord:
        found = worker.parts.deps.store.get(MACHINES, await worker.stopped(services=[WEB], **config))
        assert found is not None
        return found

    assert autostarts(await made()) and not autostarts(await made(disable_machine_autostart=True))
    for text, expected in (("30", 30.0), ("5", 300.0), ("x", 300.0), ("inf", 300.0)):
        assert idle_s(await made(metadata={"hawker_idle_s": text}), 300.0) == expected


async def test_machines_of_other_nodes_are_told_until_they_are_here(worker: SimWorker, tmp_path: Path) -> None:
    door = door_of(worker, replace(HOST, folder=tmp_path))
    gate = GatePlace(node=NodeId("b" * 8), host="10.0.0.2", port=4291)
    record = worker.record(MachineId(await worker.stopped(services=[WEB])))
    own = door.whole().machines[0]
    far = msgspec.structs.replace(own, id=MachineId("f" * 14), gate=gate)
    door.tell_far([far], [])
    assert {each.id for each in door.whole().machines} == {own.id, far.id}
    door.tell_far([msgspec.structs.replace(own, gate=gate)], [])
    (told,) = door.whole().machines
    assert told.id == record.id and told.gate is None, "the word of its own node counts"
    assert door.whole().gate is None
    door.join(gate, lambda: "papers")
    door.give_keys()
    assert door.whole().gate == gate and (tmp_path / NODE_IDENTITY).read_text() == "papers"


async def test_an_app_with_an_address_needs_an_edge_and_is_told(worker: SimWorker) -> None:
    door = door_of(worker)
    await worker.stopped(services=[WEB])
    allocator = worker.parts.ips
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(door.watch_addresses)
        await worker.parts.deps.clock.sleep(3.0)
        assert door.whole().app_addresses == ()
        given = await allocator.allocate(APP, IpRequest(type="shared_v4"))
        await door.needed()
        (told,) = door.whole().app_addresses
        assert (told.app, told.ip, told.shared) == (APP, given.ip, True)
        await allocator.release(APP, given.ip)
        await worker.parts.deps.clock.sleep(3.0)
        assert door.whole().app_addresses == ()
        tasks.cancel_scope.cancel()


async def test_an_edge_is_needed_for_others_where_nothing_is_published_here(worker: SimWorker) -> None:
    door = door_of(worker, replace(HOST, addresses=()))
    await worker.stopped(services=[WEB], metadata={PUBLISH: EVERYWHERE})
    with anyio.move_on_after(0) as alone:
        await door.needed()
    assert alone.cancelled_caught
    door.join(GatePlace(node=NodeId("a" * 8), host="10.0.0.1", port=4291), str)
    await door.needed()


async def test_certificates_are_told_sealed_and_their_key_is_in_a_file_of_the_nodes_user(
    worker: SimWorker, tmp_path: Path
) -> None:
    door = door_of(worker, replace(HOST, folder=tmp_path))
    certificates = worker.parts.deps.certificates
    record = await certificates.put(APP, "shop.example.com", *issued("shop.example.com"))
    (told,) = door.whole().certificates
    assert (told.hostname, told.app, told.sealed) == ("shop.example.com", APP, record.sealed)
    for _ in range(2):
        door.give_keys()
    file = tmp_path / CERTIFICATE_KEY
    assert file.read_bytes() == certificates.key and file.stat().st_mode & 0o777 == 0o600


async def test_a_folder_that_is_gone_costs_the_key_and_not_the_daemon(worker: SimWorker, tmp_path: Path) -> None:
    door_of(worker, replace(HOST, folder=tmp_path / "gone")).give_keys()
    assert not (tmp_path / "gone").exists()


async def test_addresses_in_private_networks_are_told_of_networks_that_are_here(worker: SimWorker) -> None:
    heard: list[Sequence[AppAddress]] = []
    door = door_of(worker)
    door.listen_addresses(heard.append)
    addresses = [AppAddress(app=AppName(APP), ip=ip) for ip in ("fdaa:0:7::1:2", "fdaa:0:7::2:1:2", "203.0.113.7")]
    for _ in range(2):
        door.tell_far((), addresses)
    assert door.private_addresses == {7: {"fdaa:0:7::1:2", "fdaa:0:7::2:1:2"}} and heard == [tuple(addresses)]


async def test_where_machines_have_the_hosts_network_private_addresses_are_nobodys(worker: SimWorker) -> None:
    door = door_of(worker, replace(HOST, own=False))
    door.tell_far((), [AppAddress(app=AppName(APP), ip=ip) for ip in ("fdaa:0:7::1:2", "203.0.113.7")])
    assert [each.ip for each in door.whole().app_addresses] == ["203.0.113.7"]


async def test_a_node_alone_serves_private_addresses_in_networks_of_its_machines(worker: SimWorker) -> None:
    await worker.started(services=[WEB])
    await worker.parts.ips.allocate(APP, IpRequest(type="private_v6"))
    await worker.parts.ips.allocate(APP, IpRequest(type="private_v6", network="elsewhere"))
    door = door_of(worker)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(door.watch_addresses)
        await eventually(lambda: bool(door.private_addresses))
        tasks.cancel_scope.cancel()
    assert len(door.private_addresses) == 1 and len(door.whole().app_addresses) == 1


class PlayedStream(ByteStream):
    """The edge's end of a connection: what it says, and what it is told."""

    def __init__(self) -> None:
        self.told = b""
        self._says, self._heard = anyio.create_memory_object_stream[bytes](8)

    def say(self, message: ToWorker) -> None:
        self._says.send_nowait(frame(message))

    def hang_up(self) -> None:
        self._says.close()

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        return await self._heard.receive()

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        self.told += item

    async def send_eof(self) -> None: ...

    async def aclose(self) -> None:
        self._heard.close()


async def test_an_edge_is_told_how_everything_is_after_what_the_one_before_it_asked_for_is_done(
    worker: SimWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of a machine is being written while its edge process dies: the next one is not told that it runs."""
    machine_id = await worker.started(services=[WEB], metadata={PUBLISH: "*"})
    running = worker.record(machine_id).running
    assert running is not None
    door, rest, written = door_of(worker), worker.parts.operations.rest, anyio.Event()

    async def slowly(*meant: Any, **how: Any) -> None:
        await written.wait()
        await rest(*meant, **how)

    monkeypatch.setattr(worker.parts.operations, "rest", slowly)
    first, second = PlayedStream(), PlayedStream()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(door._converse, first)
        await eventually(lambda: first.told)
        first.say(RestMachine(call=1, id=MachineId(machine_id), instance=running.instance_id, suspend=False))
        await eventually(lambda: door._resting)
        first.hang_up()
        tasks.start_soon(door._converse, second)
        await worker.parts.deps.clock.sleep(1.0)
        too_soon = second.told
        written.set()
        assert not too_soon
        await eventually(lambda: second.told)
        (whole, *_) = EdgeInbox().read(second.told)
        assert isinstance(whole, AllMachines) and whole.machines[0].state is not State.STARTED
        tasks.cancel_scope.cancel()


async def test_an_edge_that_outlived_a_daemon_is_told_nothing_before_other_nodes_machines_are_known(
    worker: SimWorker,
) -> None:
    """It would forget them, and the addresses of apps."""
    await worker.started(services=[WEB], metadata={PUBLISH: "*"})
    door, clock, stream = door_of(worker), worker.parts.deps.clock, PlayedStream()
    door.join(GatePlace(node=NodeId("a" * 8), host="10.0.0.1", port=4291), lambda: "")
    far = MachineRoute(
        id=MachineId("m9"),
        app=AppName("far"),
        state=State.STARTED,
        version="",
        gate=GatePlace(node=NodeId("b" * 8), host="10.0.0.2", port=4291),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(door._converse, stream)
        await clock.sleep(1.0)
        too_soon = stream.told
        door.tell_far([far], ())
        await eventually(lambda: stream.told)
        (whole, *_) = EdgeInbox().read(stream.told)
        assert not too_soon and isinstance(whole, AllMachines) and far in whole.machines
        tasks.cancel_scope.cancel()
    door.join(GatePlace(node=NodeId("a" * 8), host="10.0.0.1", port=4291), lambda: "")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(door._converse, later := PlayedStream())
        await clock.sleep(3.0)
        assert later.told, "the catalog cannot be read"
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("hears_parts", [False, True])
async def test_an_edge_is_told_everything_in_parts_if_it_hears_them_and_else_in_one_message(
    worker: SimWorker, hears_parts: bool
) -> None:
    machine_id = await worker.started(services=[WEB], metadata={PUBLISH: "*"})
    await worker.parts.deps.certificates.put(APP, "shop.example.com", *issued("shop.example.com"))
    door, stream = door_of(worker), PlayedStream()
    gate = GatePlace(node=NodeId("b" * 8), host="10.0.0.2", port=4291)
    far = [msgspec.structs.replace(told(worker)[0], id=MachineId(f"{each:014x}"), gate=gate) for each in range(450)]
    door.tell_far(far, [])
    whole = door.whole()
    assert len(whole.machines) == 451
    if hears_parts:
        stream.say(EdgeReport(call=0, hears_parts=True))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(door._converse, stream)
        await eventually(lambda: any(getattr(each, "more", True) is False for each in heard(stream)))
        first, *others = heard(stream)
        if hears_parts:
            parts = [each for each in others if isinstance(each, MoreMachines)]
            assert [first, *parts] == list(in_parts(whole, whole.machines, whole.certificates)) and len(parts) == 5
            stream.told = b""
            door._retell()
            await eventually(lambda: [each for each in heard(stream) if isinstance(each, MoreMachines)] == parts)
        else:
            assert first == whole
        running = worker.record(machine_id).running
        assert running is not None
        stream.say(RestMachine(call=1, id=MachineId(machine_id), instance=running.instance_id, suspend=False))
        await eventually(lambda: ends_stopped(stream))
        tasks.cancel_scope.cancel()


async def test_a_machine_that_changes_while_parts_are_told_is_told_once_more_after_them(worker: SimWorker) -> None:
    """Each part is made when the one before it has been taken."""
    door, stream = door_of(worker), PlayedStream()
    gate = GatePlace(node=NodeId("b" * 8), host="10.0.0.2", port=4291)
    await worker.stopped(services=[WEB])
    far = [msgspec.structs.replace(told(worker)[0], id=MachineId(f"{each:014x}"), gate=gate) for each in range(450)]
    door.tell_far(far, [])
    stream.say(EdgeReport(call=0, hears_parts=True))
    taken = stream.send

    async def changing(item: bytes) -> None:
        await taken(item)
        if sum(isinstance(each, MoreMachines) for each in heard(stream)) == 1:
            changed = msgspec.structs.replace(far[0], cordoned=True)
            door.tell_far([changed, *far[2:]], [])  # the second is gone

    stream.send = changing  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(door._converse, stream)
        await eventually(lambda: {type(each) for each in heard(stream)} >= {MachineGone, MachineChanged})
        tasks.cancel_scope.cancel()
    said = heard(stream)
    end = next(place for place, each in enumerate(said) if isinstance(each, MoreMachines) and not each.more)
    after = said[end + 1 :]
    assert any(isinstance(each, MachineChanged) and each.machine.cordoned for each in after)
    assert [each.id for each in after if isinstance(each, MachineGone)] == [far[1].id]


async def test_each_process_of_an_edge_is_told_all_that_changes_and_answered_by_itself(worker: SimWorker) -> None:
    machine_id = await worker.started(services=[WEB], metadata={PUBLISH: "*"})
    running = worker.record(machine_id).running
    assert running is not None
    door, first, second = door_of(worker), PlayedStream(), PlayedStream()
    async with anyio.create_task_group() as tasks:
        for each in (first, second):
            tasks.start_soon(door._converse, each)
        await eventually(lambda: first.told and second.told)
        second.say(RestMachine(call=7, id=MachineId(machine_id), instance=running.instance_id, suspend=False))
        await eventually(lambda: any(isinstance(each, EdgeAnswer) for each in heard(second)))
        await eventually(lambda: ends_stopped(first) and ends_stopped(second))
        assert not any(isinstance(each, EdgeAnswer) for each in EdgeInbox().read(first.told))
        tasks.cancel_scope.cancel()


def heard(stream: PlayedStream) -> list[ToEdge]:
    return list(EdgeInbox().read(stream.told))


def ends_stopped(stream: PlayedStream) -> bool:
    """The last word of a machine is that it sleeps."""
    said = [each.machine.state for each in EdgeInbox().read(stream.told) if isinstance(each, MachineChanged)]
    return said[-1:] == [State.STOPPED]


async def test_how_many_processes_serve_is_ordered_in_a_file_where_it_is_more_than_one(
    worker: SimWorker, tmp_path: Path
) -> None:
    two = door_of(worker, replace(HOST, folder=tmp_path, processes=2))
    two.order_processes()
    assert (tmp_path / PROCESSES).read_text() == "2\n"
    door_of(worker, replace(HOST, folder=tmp_path)).order_processes()
    assert not (tmp_path / PROCESSES).exists()


async def test_the_api_of_a_daemon_is_told_like_a_machine_that_never_rests(worker: SimWorker) -> None:
    door = door_of(worker, replace(HOST, api_hostname="api.example.com", domain="example.com"))
    await door.needed()  # no machine is there
    whole = door.whole()
    (api,) = whole.machines
    assert (whole.api_hostname, whole.domain) == ("api.example.com", "example.com")
    assert api.app == API_APP and api.hosts == (f"./{API_SOCKET}",)
    assert api.instance is not None and api.network == 0, "it is in nobody's network: no app may replay to it"
    assert not api.autostart and not api.services[0].autostop and not api.publish
    another = door_of(worker, replace(HOST, api_hostname="api.example.com")).whole().machines[0]
    assert another.instance != api.instance, "the edge takes another daemon for another instance"
    assert door.api_socket == (HOST.folder / API_SOCKET, None) and door_of(worker).api_socket is None
