"""Facts about containers beyond the drivers' contract: limits, confinement, and what a failed start leaves."""

import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.errors import BadRequest, CannotStart, Unavailable, WrongState
from hawker.host.cgroup import find_hierarchies
from hawker.host.machine_link import NetworkPlan
from hawker.host.mount import discard_overlay, fresh_overlay, mounts
from hawker.host.network import NodeNetwork
from hawker.ids import InstanceId, MachineId, NodeId, new_machine_id, new_ulid
from hawker.runtime.container import container_driver
from hawker.runtime.driver import Exit, Phase
from hawker.runtime.launcher.launcher_choice import LauncherChoice
from hawker.runtime.pilot.driver import PilotDriver
from hawker.runtime.spec import InstanceLimits, InstanceSpec, MountSpec, ProcessSpec
from tests.rootfs import host_programs

pytestmark = [pytest.mark.root, pytest.mark.anyio]

CLOCK = SystemClock()
DEADLINE_S = 240.0


@pytest.fixture(params=LauncherChoice)
async def driver(node_id: NodeId, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[PilotDriver]:
    driver = container_driver(node_id, tmp_path / "machines", tmp_path / "crun", CLOCK, launcher=request.param)
    await driver.check()
    with anyio.fail_after(DEADLINE_S):
        yield driver
    for machine_id in await driver.list():
        await driver.destroy(machine_id)
    assert not _groups(node_id)


def _groups(node_id: NodeId) -> list[Path]:
    trees = find_hierarchies(mounts()).trees()
    return [group for tree in trees if (group := tree / f"hawker-{node_id[:4]}").exists()]


@pytest.fixture
def spec(tmp_path: Path) -> InstanceSpec:
    return InstanceSpec(
        machine_id=new_machine_id(CLOCK),
        instance_id=InstanceId(new_ulid(CLOCK)),
        hostname="under-test",
        processes=(ProcessSpec(argv=("sleep", "1000"), env={"PATH": "/bin"}),),
        limits=InstanceLimits(cpus=1, cpu_weight=100, memory_mib=64, pids=40),
        rootfs=str(host_programs(tmp_path / "root")),
    )


def _shell(spec: InstanceSpec, script: str) -> InstanceSpec:
    process = ProcessSpec(argv=("/bin/sh", "-c", script), env={"PATH": "/bin"})
    return msgspec.structs.replace(spec, processes=(process,), instance_id=InstanceId(new_ulid(CLOCK)))


async def _run(driver: PilotDriver, spec: InstanceSpec) -> tuple[Exit, str]:
    """To its end: how it ended and what it wrote."""
    await driver.prepare(spec)
    await driver.start(spec)
    ended = await driver.wait(spec.machine_id)
    return ended, b"".join(chunk.data for chunk in driver.output(spec.machine_id)).decode()


# --- limits

_EAT = "head -c 200000000 /dev/zero | tail -n 1 > /dev/null"  # tail holds a line of 200 MB


async def test_the_memory_limit_shows_as_oom_killed(driver: PilotDriver, spec: InstanceSpec) -> None:
    ended, _ = await _run(driver, _shell(spec, f"{_EAT}; kill -9 $$"))
    assert ended.oom_killed
    assert (ended.signal, ended.exit_code) == (signal.SIGKILL, 137)


async def test_oom_killed_is_found_by_a_daemon_that_was_away(
    driver: PilotDriver, spec: InstanceSpec, node_id: NodeId, tmp_path: Path
) -> None:
    await _run(driver, _shell(spec, f"{_EAT}; exit 7"))
    later = container_driver(node_id, tmp_path / "machines", tmp_path / "crun", CLOCK)
    found = await later.recover(spec.machine_id)
    assert found.exit is not None
    assert (found.exit.oom_killed, found.exit.exit_code) == (True, 7)


async def test_a_kill_that_the_workload_survived_is_not_its_end(driver: PilotDriver, spec: InstanceSpec) -> None:
    ended, written = await _run(driver, _shell(spec, f"{_EAT}; echo survived; exit 0"))
    assert not ended.oom_killed
    assert "survived\n" in written


async def test_a_plain_kill_is_not_the_memory_limit_s(driver: PilotDriver, spec: InstanceSpec) -> None:
    ended, _ = await _run(driver, _shell(spec, "kill -9 $$"))
    assert (ended.oom_killed, ended.signal) == (False, signal.SIGKILL)


async def test_processes_are_limited(driver: PilotDriver, spec: InstanceSpec) -> None:
    script = "for i in $(seq 60); do sleep 1000 & done; exit 0"
    _, written = await _run(driver, _shell(spec, script))
    assert "fork" in written.lower()


async def test_cpu_and_memory_limits_are_the_kernels(driver: PilotDriver, spec: InstanceSpec, node_id: NodeId) -> None:
    await driver.prepare(spec)
    await driver.start(spec)
    hierarchies = find_hierarchies(mounts())
    group = Path(f"hawker-{node_id[:4]}", spec.machine_id)
    if hierarchies.v1:
        quota = (hierarchies.of("cpu") / group / "cpu.cfs_quota_us").read_text()
        memory = (hierarchies.of("memory") / group / "memory.limit_in_bytes").read_text()
    else:
        quota = (hierarchies.of("cpu") / group / "cpu.max").read_text().split()[0]
        memory = (hierarchies.of("memory") / group / "memory.max").read_text()
    assert (int(quota), int(memory)) == (100_000, 64 << 20)


# --- confinement


async def test_the_workload_is_confined(driver: PilotDriver, spec: InstanceSpec) -> None:
    script = """
        mount -t tmpfs x /tmp; echo mount $?
        unshare -U true; echo userns $?
        grep -c . /proc/kcore; echo kcore $?
        echo 1 > /proc/sys/kernel/panic; echo sysctl $?
        mknod /tmp/disk b 254 0 && head -c 1 /tmp/disk; echo disk $?
        touch /sys/x; echo sys $?
        hostname
        grep -E 'Seccomp:|CapEff|CapBnd' /proc/self/status
    """
    _, written = await _run(driver, _shell(spec, script))
    for refused in ("mount", "userns", "kcore", "sysctl", "disk", "sys"):
        assert f"{refused} 0" not in written
        assert f"{refused} " in written
    assert "under-test" in written
    assert "Seccomp:\t2" in written
    assert "CapEff:\t00000000a80405fb" in written
    assert "CapBnd:\t00000000a80405fb" in written


async def test_the_workload_sees_its_own_processes_and_devices_only(driver: PilotDriver, spec: InstanceSpec) -> None:
    _, written = await _run(driver, _shell(spec, "echo /proc/[0-9]*; echo /dev/*; cat /proc/1/comm"))
    processes, devices, first = written.splitlines()
    assert len(processes.split()) <= 4
    assert set(devices.split()) <= {
        f"/dev/{name}"
        for name in "console core fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero".split()
    }
    assert first == "pilot"


async def test_a_given_network_is_the_machines(
    driver: PilotDriver, spec: InstanceSpec, node_id: NodeId, tmp_path: Path
) -> None:
    network = NodeNetwork(node_id, tmp_path / "netns")
    await network.boot()
    try:
        plan = NetworkPlan(spec.machine_id, 7)
        path = await network.ensure(plan)
        inside = msgspec.structs.replace(_shell(spec, "cat /proc/net/if_inet6"), netns=str(path))
        _, written = await _run(driver, inside)
        assert plan.ipv6.exploded.replace(":", "") in written
    finally:
        await driver.destroy(spec.machine_id)
        await network.remove_node()


FIRST_ID = 0x40000000
_RAW_BY_FILE = bytes.fromhex("0100000200200000000000000000000000000000")  # cap_net_raw=ep, as Debian's ping has it


async def test_a_machine_with_ids_of_its_own_is_root_of_nothing_else(
    driver: PilotDriver, spec: InstanceSpec, tmp_path: Path
) -> None:
    lower = Path(spec.rootfs or "")
    shutil.copy(lower / "bin/true", lower / "bin/capable")
    os.setxattr(lower / "bin/capable", "security.capability", _RAW_BY_FILE)
    volume = tmp_path / "volume"
    volume.mkdir()
    before = os.stat("/dev/null")
    fresh_overlay(lower, tmp_path / "layers/one", tmp_path / "mapped", tmp_path / "trash", first_id=FIRST_ID)
    try:
        mapped = msgspec.structs.replace(
            _shell(
                spec,
                "cat /proc/self/uid_map; touch /data/mine /root/mine; capable; echo capable $?; mount -t tmpfs x /tmp; "
                "echo mount $?; echo 1 > /proc/sys/kernel/panic; echo sysctl $?; echo x > /dev/null && echo null 0",
            ),
            rootfs=str(tmp_path / "mapped"),
            mounts=(MountSpec(source=str(volume), target="/data", mapped=True),),
            first_id=FIRST_ID,
        )
        _, written = await _run(driver, mapped)
    finally:
        await driver.destroy(spec.machine_id)
        discard_overlay(tmp_path / "layers/one", tmp_path / "mapped", tmp_path / "trash")
    assert written.split()[:3] == ["0", str(FIRST_ID), "65536"]
    assert "capable 0\n" in written and "null 0\n" in written
    assert "mount 0" not in written and "sysctl 0" not in written
    assert (volume / "mine").stat().st_uid == 0, "as on the disk before"
    after = os.stat("/dev/null")
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


async def test_one_machine_cannot_take_all_inotify_instances_of_root(driver: PilotDriver) -> None:
    if not driver.features.user_namespace:
        pytest.skip(f"this host maps no ids: {driver.features.lacks_user_namespace}")
    await driver.check()
    assert _inotify("max_user_instances") >= 1 << 24
    assert _inotify("max_user_watches") >= 1 << 28


def _inotify(name: str) -> int:
    return int(Path("/proc/sys/fs/inotify", name).read_text())


async def test_a_root_that_is_not_mounted_with_the_machine_s_ids_is_refused(
    driver: PilotDriver, spec: InstanceSpec
) -> None:
    with pytest.raises(WrongState, match="not mounted with the machine's ids"):
        await driver.prepare(msgspec.structs.replace(spec, first_id=FIRST_ID))


# --- refusals and leftovers


async def test_a_root_filesystem_that_is_not_there_is_named(driver: PilotDriver, spec: InstanceSpec) -> None:
    with pytest.raises(WrongState, match="/nowhere"):
        await driver.prepare(msgspec.structs.replace(spec, rootfs="/nowhere"))
    with pytest.raises(BadRequest, match="root filesystem"):
        await driver.prepare(msgspec.structs.replace(spec, rootfs=None))


async def test_a_network_that_is_not_there_is_named(driver: PilotDriver, spec: InstanceSpec) -> None:
    with pytest.raises(WrongState, match="/nowhere"):
        await driver.prepare(msgspec.structs.replace(spec, netns="/nowhere"))


async def test_a_failing_launch_is_told_and_leaves_nothing_running(
    driver: PilotDriver, spec: InstanceSpec, node_id: NodeId, tmp_path: Path
) -> None:
    await driver.prepare(spec)
    shutil.rmtree(tmp_path / "root")
    with pytest.raises(Unavailable, match=r"(crun cannot start machine|machine .* cannot be launched).*root"):
        await driver.start(spec)
    assert not _groups(node_id)
    assert (await driver.inspect(spec.machine_id)).phase is Phase.PREPARED
    host_programs(tmp_path / "root")
    assert (await driver.start(spec)).phase is Phase.RUNNING


async def test_a_group_or_a_state_without_a_machine_is_listed_and_destroyed(
    driver: PilotDriver, node_id: NodeId, tmp_path: Path
) -> None:
    grouped, known = MachineId("00000000000001"), MachineId("00000000000002")
    tree = find_hierarchies(mounts()).of("pids")
    (tree / f"hawker-{node_id[:4]}" / grouped).mkdir(parents=True)
    (tmp_path / "crun" / known).mkdir(parents=True)
    assert await driver.list() == [grouped, known]
    for machine_id in (grouped, known):
        await driver.destroy(machine_id)
    assert await driver.list() == []


async def test_check_names_what_to_install(driver: PilotDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CannotStart, match=r"apt-get install (crun|nftables)"):
        await driver.check()
