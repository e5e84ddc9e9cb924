"""Machines and volumes that move between two real nodes. Who is killed when is played by `tests/chaos/moves`."""

import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import Machine
from hawker.api.contract.machine_operation import SUSPEND_MACHINE
from hawker.api.contract.move import (
    GET_MOVE,
    MOVE_FREE_VOLUME,
    MOVE_MACHINE,
    Move,
    MoveParams,
    MoveRequest,
)
from hawker.api.contract.volume import (
    CREATE_SNAPSHOT,
    CREATE_VOLUME,
    GET_VOLUME,
    LIST_SNAPSHOTS,
    CreateVolumeRequest,
    Volume,
    VolumeParams,
)
from hawker.chaos.guests import bring_kernels
from hawker.errors import BadRequest, HawkerError, NoDestination, NotFound, NotServed, Unavailable
from tests.e2e.command_line import CommandLine, Done
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import WITHIN_S, Host
from tests.e2e.test_volumes import make
from tests.e2e.two_hosts import met, two_hosts
from tests.kernel import kernels
from tests.microvm import lack_of_qemu
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]

LEDGER = "i=0; while true; do i=$((i+1)); echo $i >> /data/ledger; sync /data/ledger; echo $i; sleep 0.02; done"
"""Numbers that are on disk before they are said."""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    """Both take machines, before and after each test."""
    with two_hosts(tmp_path_factory.mktemp("hosts")) as pair:
        yield pair


@pytest.fixture
async def shop(hosts: tuple[Host, Host], request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    """An app of the test's own, as the broker of the first node knows it."""
    await met(hosts)
    async with hosts[0].node.client() as client:
        shop = Shop(client, request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-"))
        await shop.open()
        yield shop
        await shop.close()


async def with_ledger(shop: Shop, image: str, *, memory_mb: int = 64, program: str = LEDGER) -> Machine:
    volume = await make(shop, region="mad")
    config: dict[str, Any] = {
        "image": image,
        "guest": {"memory_mb": memory_mb},
        "mounts": [{"volume": volume.id, "path": "/data"}],
        "init": {"exec": ["/bin/sh", "-c", program]},
        "metadata": {"kept": "yes"},
        "restart": {"policy": "no"},
        "stop_config": {"signal": "SIGKILL", "timeout": 1},
    }
    made = await shop.run_somewhere(config, name="ledger")
    await eventually(lambda: written(shop, made), WITHIN_S)
    return made


async def written(shop: Shop, machine: Machine, ledger: str = "/data/ledger") -> bool:
    """Whether the ledger has begun: the machine is started a moment before."""
    try:
        return (await shop.shell(machine.id, f"test -s {ledger}")).exit_code == 0
    except HawkerError:
        return False


async def said(shop: Shop, machine: Machine) -> int:
    """The last number that the ledger has."""
    text = await shop.said(machine.id, "tail", "-n", "1", "/data/ledger")
    return int(text)


async def moved(shop: Shop, machine: Machine, to: str) -> Move:
    """Once it has ended."""
    return await ended(shop, (await begun(shop, machine, to)).id)


async def begun(shop: Shop, machine: Machine, to: str) -> Move:
    """Once the owner has heard of the other node, and the broker of the owner."""

    async def ordered() -> Move | None:
        try:
            return await shop.client.call(MOVE_MACHINE, params=shop.params(machine.id), body=MoveRequest(to=to))
        except (NotFound, Unavailable, NoDestination):
            return None

    made = await eventually(ordered, WITHIN_S)
    assert made is not None
    return made


def owns(host: Host, machine: Machine) -> bool:
    """Whether its volume's file is at this node."""
    assert machine.config is not None and machine.config.mounts
    return (host.node.data_dir / "volumes" / str(machine.config.mounts[0].volume) / "disk").exists()


async def ended(shop: Shop, move_id: str) -> Move:
    async def over() -> Move | None:
        try:
            move = await shop.client.call(GET_MOVE, params=MoveParams(move_id=move_id))
        except HawkerError:
            return None
        return move if move.state in ("done", "aborted") else None

    found = await eventually(over, WITHIN_S)
    assert found is not None
    return found


async def test_a_machine_moves_with_its_volume_and_back(
    hosts: tuple[Host, Host], shop: Shop, toolbox_image: str
) -> None:
    machine = await with_ledger(shop, toolbox_image)
    ids = [host.node.node_id for host in hosts]
    first = await shop.get(machine.id)
    here = 0 if owns(hosts[0], machine) else 1
    for turn in (1, 2, 3):
        there = (here + turn) % 2
        before = await said(shop, machine)
        move = await moved(shop, machine, ids[there])
        assert move.state == "done", move.reason
        assert (move.mode, move.generation, move.node) == ("warm", turn + 1, ids[1 - there])
        assert owns(hosts[there], machine) and not owns(hosts[1 - there], machine)
        after = await shop.wait(machine.id, "started")
        assert (after.id, after.name, after.private_ip) == (first.id, first.name, first.private_ip)
        assert after.config is not None and after.config.metadata == {"kept": "yes"}
        numbers = [int(line) for line in (await shop.said(machine.id, "cat", "/data/ledger")).split()]
        assert before in numbers


@pytest.mark.long(
    reason="waits for what is looked at now and then; tests/worker/moves/test_snapshots.py has it in virtual time"
)
async def test_a_snapshot_follows_its_volume_and_is_restored_at_the_new_node(
    hosts: tuple[Host, Host], shop: Shop
) -> None:
    volume = await make(shop, name="free", region="mad")
    here = 0 if (hosts[0].node.data_dir / "volumes" / volume.id / "disk").exists() else 1
    at, there = VolumeParams(app_name=shop.app, volume_id=volume.id), hosts[1 - here].node
    taken = (await shop.client.call(CREATE_SNAPSHOT, params=at)).Msg.backup.id
    old, new = (hosts[each].node.data_dir / "snapshots" / taken for each in (here, 1 - here))

    async def listed() -> list[tuple[str, str | None]]:
        try:
            return [(each.status, each.node) for each in await shop.client.call(LIST_SNAPSHOTS, params=at)]
        except HawkerError:
            return []

    async def is_whole() -> bool:
        return await listed() == [("created", None)]

    await eventually(is_whole, WITHIN_S)
    before = hashlib.sha256(old.read_bytes()).digest()
    order = MoveRequest(to=there.node_id)
    move = await eventually(lambda: _ordered(shop, at, order), WITHIN_S)
    assert move is not None and (await ended(shop, move.id)).state == "done"
    await eventually(new.exists, WITHIN_S)
    await eventually(is_whole, WITHIN_S)
    assert hashlib.sha256(new.read_bytes()).digest() == before
    await eventually(lambda: not old.exists(), WITHIN_S)  # until it hears that it may go, its node has it, too
    body = CreateVolumeRequest(name="again", snapshot_id=taken, region="mad")
    restored = await shop.client.call(CREATE_VOLUME, params=AppParams(app_name=shop.app), body=body)
    assert restored.zone == there.node_id


async def _ordered(shop: Shop, volume: VolumeParams, order: MoveRequest) -> Move | None:
    """Once the owner has heard of the other node."""
    try:
        return await shop.client.call(MOVE_FREE_VOLUME, params=volume, body=order)
    except (NotFound, Unavailable, NoDestination):
        return None


async def test_a_free_volume_moves_by_the_command_line_and_what_cannot_move_says_why(
    hosts: tuple[Host, Host], shop: Shop, toolbox_image: str
) -> None:
    volume = await make(shop, name="free", region="mad")
    ids = [host.node.node_id for host in hosts]
    here = 0 if (hosts[0].node.data_dir / "volumes" / volume.id / "disk").exists() else 1
    command = CommandLine(hosts[0].node.environment | {"HAWKER_DATA_DIR": str(hosts[0].node.data_dir)})

    async def told() -> Done | None:
        """Once the owner has heard of the other node."""
        done = command("volumes", "move", volume.id, "-a", shop.app, "--to-node", ids[1 - here])
        return None if "is not known here" in done.err else done

    done = await eventually(told, WITHIN_S)
    assert done is not None and done.status == 0 and "done" in done.out, done
    assert (hosts[1 - here].node.data_dir / "volumes" / volume.id / "disk").exists()
    listed = command.say("moves", "list", "-a", shop.app)
    assert volume.id in listed and "done" in listed
    move_id = listed.splitlines()[1].split()[0]
    assert "done" in command.say("moves", "show", move_id)
    params = VolumeParams(app_name=shop.app, volume_id=volume.id)
    for mode in ("through", "lazy"):
        with pytest.raises(NotServed, match=mode):
            await shop.client.call(MOVE_FREE_VOLUME, params=params, body=MoveRequest(mode=mode))
    with pytest.raises(BadRequest, match="already"):
        await shop.client.call(MOVE_FREE_VOLUME, params=params, body=MoveRequest(to=ids[1 - here]))
    refused = command("moves", "cancel", move_id)
    assert refused.status == 1 and "the move is done, so it cannot be cancelled" in refused.err


@pytest.mark.long(reason="a volume that moves with its machine, and by itself, is the short form")
async def test_a_fork_in_a_zone_of_its_own_has_the_content_on_the_other_host(
    hosts: tuple[Host, Host], shop: Shop, toolbox_image: str
) -> None:
    machine = await with_ledger(shop, toolbox_image)
    here = 0 if owns(hosts[0], machine) else 1
    assert machine.config is not None and machine.config.mounts
    source, other = str(machine.config.mounts[0].volume), hosts[1 - here]
    before = await said(shop, machine)

    async def left() -> Volume | None:
        """One that leaves, once the source's node has heard of the other one."""
        made = await make(shop, name="copy", size_gb=None, source_volume_id=source, require_unique_zone=True)
        return made if made.zone == other.node.node_id or made.state == "hydrating" else None

    fork = await eventually(left, WITHIN_S)
    assert fork is not None
    at = VolumeParams(app_name=shop.app, volume_id=fork.id)

    async def there() -> bool:
        """Also for a broker that has not heard of the move yet."""
        try:
            shown = await shop.client.call(GET_VOLUME, params=at)
        except HawkerError:
            return False
        return (shown.zone, shown.state) == (other.node.node_id, "created")

    await eventually(there, WITHIN_S)
    assert (other.node.data_dir / "volumes" / fork.id / "disk").exists()
    config = {
        "image": toolbox_image,
        "guest": {"memory_mb": 64},
        "init": {"exec": ["/bin/sleep", "1000"]},
        "mounts": [{"volume": fork.id, "path": "/data"}],
    }
    reader = await shop.run(config, name="reader")
    await shop.wait(reader.id, "started")
    copied = [int(line) for line in (await shop.said(reader.id, "cat", "/data/ledger")).split()]
    assert before in copied and copied == list(range(1, len(copied) + 1))


ROOT_LEDGER = LEDGER.replace("/data/ledger", "/ledger")
"""The same in the root filesystem."""


async def with_root_ledger(shop: Shop, image: str, *, memory_mb: int = 64, persist: str = "restart") -> Machine:
    """A machine without a volume that keeps its root filesystem."""
    config: dict[str, Any] = {
        "image": image,
        "guest": {"memory_mb": memory_mb},
        "rootfs": {"persist": persist},
        "init": {"exec": ["/bin/sh", "-c", ROOT_LEDGER]},
        "restart": {"policy": "no"},
        "stop_config": {"signal": "SIGKILL", "timeout": 1},
    }
    made = await shop.run_somewhere(config, name="ledger")
    await eventually(lambda: written(shop, made, "/ledger"), WITHIN_S)
    return made


def roots(host: Host, machine: Machine) -> list[Path]:
    """The files of root filesystems that the node keeps of the machine."""
    directory = host.node.data_dir / "machines" / machine.id
    return [*directory.glob("disks/kept*"), *directory.glob("layers/kept*/disk")]


@pytest.mark.long(reason="the drain of such a machine is the short form")
async def test_a_machine_moves_with_the_root_filesystem_that_it_keeps_and_back(
    hosts: tuple[Host, Host], shop: Shop, toolbox_image: str
) -> None:
    machine = await with_root_ledger(shop, toolbox_image)
    await _moves_with_its_root(hosts, shop, machine, "warm")


async def _moves_with_its_root(hosts: tuple[Host, Host], shop: Shop, machine: Machine, mode: str) -> None:
    ids = [host.node.node_id for host in hosts]
    here = 0 if roots(hosts[0], machine) else 1
    for there in (1 - here, here):
        before = int(await shop.said(machine.id, "tail", "-n", "1", "/ledger"))
        move = await moved(shop, machine, ids[there])
        assert move.state == "done", move.reason
        assert (move.mode, move.volume, move.node) == (mode, None, ids[1 - there])
        assert roots(hosts[there], machine) and not roots(hosts[1 - there], machine)
        retired = hosts[1 - there].node.data_dir / "volumes" / ".retired" / f"{machine.id}.{move.generation}"
        assert retired.exists()
        await shop.wait(machine.id, "started")
        lines = (await shop.said(machine.id, "cat", "/ledger")).split()
        assert str(before) in lines
        print(f"{move.mode}, {move.stored_bytes >> 10} KiB stored, away {move.away_ms} ms")


async def test_a_drain_moves_a_machine_that_keeps_its_root_filesystem_and_loses_nothing(
    hosts: tuple[Host, Host], shop: Shop, toolbox_image: str
) -> None:
    machine = await with_root_ledger(shop, toolbox_image, persist="always")
    here = 0 if roots(hosts[0], machine) else 1
    command = CommandLine(hosts[0].node.environment | {"HAWKER_DATA_DIR": str(hosts[0].node.data_dir)})
    before = int(await shop.said(machine.id, "tail", "-n", "1", "/ledger"))

    async def drained() -> Done | None:
        """Once the owner has heard of the other node."""
        done = command("node", "drain", hosts[here].node.node_id)
        return done if done.status == 0 else None

    done = await eventually(drained, WITHIN_S)
    assert done is not None and "its root filesystem" in done.out, done
    assert roots(hosts[1 - here], machine) and not roots(hosts[here], machine)
    await shop.wait(machine.id, "started")
    assert str(before) in (await shop.said(machine.id, "cat", "/ledger")).split()
    command.say("node", "uncordon", hosts[here].node.node_id)


async def test_a_suspended_machine_moves_by_a_cold_start_and_keeps_its_files(
    hosts: tuple[Host, Host], shop: Shop, toolbox_image: str
) -> None:
    machine = await with_root_ledger(shop, toolbox_image)
    ids = [host.node.node_id for host in hosts]
    here = 0 if roots(hosts[0], machine) else 1
    before = int(await shop.said(machine.id, "tail", "-n", "1", "/ledger"))
    await shop.client.call(SUSPEND_MACHINE, params=shop.params(machine.id))
    await shop.wait(machine.id, "suspended")
    command = CommandLine(hosts[0].node.environment | {"HAWKER_DATA_DIR": str(hosts[0].node.data_dir)})
    words = ("machine", "move", machine.id, "-a", shop.app, "--to", ids[1 - here])

    async def refused() -> Done | None:
        """Once the owner has heard of the other node."""
        done = command(*words)
        return done if "--cold-start" in done.err else None

    done = await eventually(refused, WITHIN_S)
    assert done is not None and done.status != 0
    done = command(*words, "--cold-start")
    assert done.status == 0 and "done" in done.out, done
    assert (await shop.wait(machine.id, "stopped")).state == "stopped" and roots(hosts[1 - here], machine)
    told = [event.error for event in await shop.events(machine.id)]
    assert any("its memory is dropped" in each for each in told), told
    await shop.start(machine.id)
    await shop.wait(machine.id, "started")
    assert str(before) in (await shop.said(machine.id, "cat", "/ledger")).split()


@pytest.mark.long(reason="emulated machines boot three times; the tests above move containers by the same flows")
@pytest.mark.timeout(1800)  # each boot takes minutes on a busy host
async def test_a_microvm_moves_with_the_root_filesystem_that_it_keeps_and_back(
    tmp_path: Path, toolbox_image: str
) -> None:
    if reason := lack_of_qemu():
        pytest.skip(reason)
    flags = (("--driver", "qemu"),) * 2
    with two_hosts(tmp_path, flags, lambda host: bring_kernels(host.node.place, kernels())) as hosts:
        await met(hosts)
        async with hosts[0].node.client() as client:
            shop = Shop(client, "moves")
            await shop.open()
            machine = await with_root_ledger(shop, toolbox_image, memory_mb=256)
            await _moves_with_its_root(hosts, shop, machine, "warm")


@pytest.mark.long(reason="emulated machines boot three times; the tests above move containers by the same flows")
@pytest.mark.timeout(1800)  # each boot takes minutes on a busy host
async def test_a_microvm_moves_with_its_volume_and_back(tmp_path: Path, toolbox_image: str) -> None:
    """Nothing tells what QEMU writes to a file, so all blocks are compared while the machine is off."""
    if reason := lack_of_qemu():
        pytest.skip(reason)
    flags = (("--driver", "qemu"),) * 2
    with two_hosts(tmp_path, flags, lambda host: bring_kernels(host.node.place, kernels())) as hosts:
        await met(hosts)
        async with hosts[0].node.client() as client:
            shop = Shop(client, "moves")
            await shop.open()
            machine = await with_ledger(shop, toolbox_image, memory_mb=256)
            ids = [host.node.node_id for host in hosts]
            here = 0 if owns(hosts[0], machine) else 1
            for there in (1 - here, here):
                before = await said(shop, machine)
                move = await moved(shop, machine, ids[there])
                assert move.state == "done", move.reason
                assert owns(hosts[there], machine) and not owns(hosts[1 - there], machine)
                await shop.wait(machine.id, "started")
                text = await shop.said(machine.id, "cat", "/data/ledger")
                assert before in [int(line) for line in text.split()]
                print(f"microVM: {move.mode}, {move.stored_bytes >> 20} MiB stored, away {move.away_ms} ms")


TOKEN = f"echo memory > /dev/token; {LEDGER}"
"""What it counts is in its memory, and so is all below `/dev`."""


@pytest.mark.long(reason="an emulated machine boots and is resumed twice; the simulator plays its move with deaths")
@pytest.mark.timeout(1800)  # each boot takes minutes on a busy host
async def test_a_suspended_microvm_moves_with_its_memory_and_goes_on_there_and_back(
    tmp_path: Path, toolbox_image: str
) -> None:
    if reason := lack_of_qemu():
        pytest.skip(reason)
    flags = (("--driver", "qemu"),) * 2
    with two_hosts(tmp_path, flags, lambda host: bring_kernels(host.node.place, kernels())) as hosts:
        await met(hosts)
        async with hosts[0].node.client() as client:
            shop = Shop(client, "moves")
            await shop.open()
            machine = await with_ledger(shop, toolbox_image, memory_mb=256, program=TOKEN)
            here = 0 if owns(hosts[0], machine) else 1
            for source, to in ((hosts[here], hosts[1 - here]), (hosts[1 - here], hosts[here])):
                await _goes_on(shop, machine, source, to)


async def _goes_on(shop: Shop, machine: Machine, source: Host, to: Host) -> None:
    assert machine.config is not None and machine.config.mounts
    disk = Path("volumes") / str(machine.config.mounts[0].volume) / "disk"
    memory = source.node.data_dir / "machines" / machine.id / "run" / "vmm" / "snapshot" / "memory"
    await shop.client.call(SUSPEND_MACHINE, params=shop.params(machine.id))
    await shop.wait(machine.id, "suspended")
    before, size = hashlib.sha256((source.node.data_dir / disk).read_bytes()).digest(), memory.stat().st_size
    move = await moved(shop, machine, to.node.node_id)
    assert (move.state, move.mode) == ("done", "cold"), move.reason
    assert move.stored_bytes > size and not memory.exists()
    assert hashlib.sha256((to.node.data_dir / disk).read_bytes()).digest() == before
    await shop.wait(machine.id, "suspended")
    await shop.start(machine.id)
    await shop.wait(machine.id, "started")
    assert (await shop.said(machine.id, "cat", "/dev/token")).strip() == "memory"
    there = await said(shop, machine)
    await eventually(lambda: _has_said(shop, machine, there + 1), WITHIN_S)
    numbers = [int(line) for line in (await shop.said(machine.id, "cat", "/data/ledger")).split()]
    assert numbers == list(range(1, len(numbers) + 1)), "a program that begins anew counts from 1 again"
    print(f"suspended: {move.stored_bytes >> 20} MiB stored, {size >> 20} MiB of them its memory")


async def _has_said(shop: Shop, machine: Machine, number: int) -> bool:
    return await said(shop, machine) >= number
