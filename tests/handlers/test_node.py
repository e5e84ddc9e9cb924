import hashlib
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from hawker.api.contract.node import (
    BACK_UP,
    HEALTH,
    LIST_FINDINGS,
    LIST_REGIONS,
    NODE_INFO,
    REPAIR_FINDINGS,
    BackupPart,
    RepairRequest,
)
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.errors import NotServed, Unavailable
from hawker.feed import API_APP, EdgeReport, ListenState
from hawker.handlers.assembly import worker_handlers
from hawker.handlers.node import DoctorHandlers
from hawker.ids import AppName, MachineId
from hawker.record.node import COPY
from hawker.runtime.driver import LostPart
from hawker.runtime.driver_probe import DriverVerdict
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import ROOM, MemoryWorld
from hawker.store.contract import Bucket
from hawker.store.sqlite import SqliteStore
from hawker.worker.edge_line import EdgeLine
from hawker.worker.reconcile import Kind

pytestmark = pytest.mark.anyio


async def test_the_node_tells_what_it_has_and_what_is_used(worker: SimWorker) -> None:
    await worker.started(guest={"cpu_kind": "shared", "cpus": 2, "memory_mb": 512})
    await worker.stopped()
    node = await worker.api.call(NODE_INFO)
    assert (node.region, node.driver) == ("local", "fake")
    assert (node.capacity.cpus, node.capacity.memory_mb) == (ROOM.cpus, ROOM.memory_mib)
    assert (node.used.shared_cpus, node.used.memory_mb) == (2, 512)
    assert node.machines == {"started": 1, "stopped": 1}


async def test_the_node_tells_what_it_found_of_each_driver(worker: SimWorker) -> None:
    found = (
        DriverVerdict(name="qemu", usable=True, reason="it emulates", by_itself=False),
        DriverVerdict(name="container", usable=True, reason="all is there", by_itself=True, chosen=True),
    )

    async def drivers() -> tuple[DriverVerdict, ...]:
        return found

    api = InProcessCaller(worker_handlers(replace(worker.parts, drivers=drivers)), worker.parts.deps.clock, "ann")
    told = (await api.call(NODE_INFO)).drivers
    assert [(each.name, each.usable, each.reason, each.chosen) for each in told] == [
        ("qemu", True, "it emulates", False),
        ("container", True, "all is there", True),
    ]


async def test_health_and_regions(worker: SimWorker) -> None:
    assert (await worker.api.call(HEALTH)).status == "ok"
    regions = await worker.api.call(LIST_REGIONS)
    assert [region.code for region in regions.regions] == [regions.nearest] == ["local"]
    assert (regions.Regions, regions.Nearest) == (regions.regions, regions.nearest)


NOISE = Bucket("noise", bytes)


@pytest.fixture
def stall(stall: MemoryWorld) -> MemoryWorld:
    stall.reconciles = False
    return stall


async def test_findings_say_what_is_wrong_and_who_mends_it(worker: SimWorker, stall: MemoryWorld) -> None:
    assert (await worker.api.call(LIST_FINDINGS)).findings == ()
    machine_id = MachineId(await worker.started())
    stall.host.worn[machine_id] = {LostPart.CGROUP, LostPart.RUNTIME_STATE}
    found = (await worker.api.call(LIST_FINDINGS)).findings
    assert [(each.kind, each.about, each.by, each.outcome) for each in found] == [
        ("lost control group", machine_id, "node", None),
        ("lost runtime state", machine_id, "nobody", None),
    ]
    assert all(each.detail and each.repair for each in found)
    assert (await worker.api.call(LIST_FINDINGS)).findings == found


async def test_a_repair_says_what_became_of_each(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = MachineId(await worker.started())
    stall.host.worn[machine_id] = {LostPart.CGROUP, LostPart.RUNTIME_STATE}
    stall.networks.rules = False
    stall.host.script("mend", FakeFault(error=OSError("read-only file system")))
    answer = await worker.api.call(REPAIR_FINDINGS, body=RepairRequest())
    outcomes = {each.kind: (each.outcome, each.error) for each in answer.findings}
    assert outcomes == {
        "lost control group": ("failed", "read-only file system"),
        "lost runtime state": ("left", None),
        "lost packet rules": ("mended", None),
    }


async def test_a_host_that_cannot_be_looked_at_is_to_be_asked_again(worker: SimWorker, stall: MemoryWorld) -> None:
    async def broken() -> list[MachineId]:
        raise OSError("input/output error")

    stall.networks.list = broken  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="input/output error"):
        await worker.api.call(LIST_FINDINGS)
    with pytest.raises(Unavailable, match="input/output error"):
        await worker.api.call(REPAIR_FINDINGS)


async def test_an_api_that_is_not_reached_through_the_edge_is_a_finding_for_the_operator(
    worker: SimWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    deps, handlers, name = worker.parts.deps, Handlers(), "api.example.com"
    settings = replace(deps.settings, api_hostname=name, acme_directory="https://ca.example.com/")
    line = EdgeLine()
    DoctorHandlers(worker.store, settings, deps.clock, worker.reconciler, tuple, tuple, line).bind(handlers)
    api = InProcessCaller(handlers, deps.clock, "ann")

    async def found() -> list[str]:
        listed = await api.call(LIST_FINDINGS)
        return [each.detail for each in listed.findings if each.kind == Kind.UNREACHED_API and each.about == name]

    assert "is not there" in (await found())[0]
    open_one = ListenState(address="192.0.2.1", port=80, app=API_APP)
    shut = ListenState(address="192.0.2.1", port=443, app=API_APP, refused="in use")
    others = ListenState(address="192.0.2.1", port=25, app=AppName("mail"), refused="in use")

    async def report() -> EdgeReport:
        return EdgeReport(call=1, bound=(open_one, shut, others))

    monkeypatch.setattr(line, "report", report)
    assert await found() == ["192.0.2.1 port 443: in use"]


# Backups.


async def received(api: InProcessCaller) -> list[BackupPart]:
    async with api.stream(BACK_UP) as parts:
        return [part async for part in parts]


def left_over(directory: Path) -> list[Path]:
    return list(directory.glob("backup*"))


async def test_a_backup_is_a_store_that_says_that_it_is_one(worker: SimWorker, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "real.db")
    await store.write(lambda tx: tx.put(NOISE, "much", bytes(1_000_000)))
    deps, handlers = worker.parts.deps, Handlers()
    DoctorHandlers(store, deps.settings, deps.clock, worker.reconciler, tuple, tuple, deps.edge).bind(handlers)
    api = InProcessCaller(handlers, deps.clock, "ann")
    *parts, last = await received(api)
    data = b"".join(part.data for part in parts)
    assert len(parts) > 3 and max(len(part.data) for part in parts) <= 256 * 1024
    assert (last.data, last.size_bytes, last.sha256) == (b"", len(data), hashlib.sha256(data).hexdigest())
    assert not left_over(tmp_path)
    await anyio.Path(tmp_path / "copy.db").write_bytes(data)
    copy = SqliteStore(tmp_path / "copy.db")
    mark = copy.get(COPY, "self")
    assert mark is not None and mark.taken_at == deps.clock.now()
    assert copy.count(NOISE) == 1 and store.get(COPY, "self") is None
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(received, api)
    await copy.close()
    await store.close()


async def test_a_store_without_a_file_has_no_copy(worker: SimWorker) -> None:
    with pytest.raises(NotServed):
        await received(worker.api)
