"""What every driver promises about containers: processes of one machine with root filesystems of their own."""

from pathlib import Path

import msgspec
import pytest

from hawker.errors import BadRequest, NotServed, WrongState
from hawker.host.mount import mounts
from hawker.ids import MachineId
from hawker.runtime.driver import Driver, ExecSession, ExecSpec, ProcessPhase
from hawker.runtime.spec import Ends, FileSpec, InstanceSpec, MountSpec
from tests.contract.drivers import Rig
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

FOREVER = ("sleep", "1000")


async def containers(rig: Rig, **commands: str | tuple[str, ...]) -> InstanceSpec:
    """The spec of a machine with a container for each command, by name, that ends when it is told to."""
    spec = await rig.spec(*commands.values())
    processes = [
        msgspec.structs.replace(process, name=name, root=await root_of(rig, f"{spec.machine_id}-{name}"))
        for name, process in zip(commands, spec.processes, strict=True)
    ]
    return msgspec.structs.replace(spec, processes=tuple(processes), ends=Ends.TOLD)


async def root_of(rig: Rig, name: str) -> str:
    return f"/roots/{name}" if rig.make_rootfs is None else await rig.make_rootfs(MachineId(name))


def but(spec: InstanceSpec, index: int, **changes: object) -> InstanceSpec:
    processes = list(spec.processes)
    processes[index] = msgspec.structs.replace(processes[index], **changes)
    return msgspec.structs.replace(spec, processes=tuple(processes))


async def started(rig: Rig, spec: InstanceSpec) -> InstanceSpec:
    await rig.driver.prepare(spec)
    await rig.driver.start(spec)
    return spec


@pytest.fixture
def able(rig: Rig) -> Rig:
    """One that has containers."""
    if not rig.driver.features.containers:
        pytest.skip("its machines have no root filesystem, so no containers; that it says so is a test of its own")
    return rig


@pytest.fixture
def real(able: Rig) -> Rig:
    if not able.real:
        pytest.skip("needs programs that really run")
    return able


async def said(driver: Driver, spec: InstanceSpec, process: int) -> bytes:
    return b"".join(chunk.data for chunk in driver.output(spec.machine_id) if chunk.process == process)


async def final(rig: Rig, spec: InstanceSpec, process: int = 0) -> bytes:
    """All that it said, once it has ended."""
    states = await rig.driver.process_states(spec.machine_id)
    while states[process].state is not ProcessPhase.EXITED:
        states = await rig.driver.await_process_change(spec.machine_id, states)
    return await said(rig.driver, spec, process)


async def says(rig: Rig, spec: InstanceSpec, wanted: bytes, process: int = 0) -> None:
    """All that it said is this, once it has ended: a pipe may be read past the exit."""
    await final(rig, spec, process)

    async def has_said_all() -> bool:
        return await said(rig.driver, spec, process) == wanted

    await eventually(has_said_all)


async def read(session: ExecSession) -> bytes:
    return b"".join([data async for _, data in session.output()])


async def run(rig: Rig, spec: InstanceSpec, command: str, process: int = 0, **more: bool) -> bytes:
    argv = ("/bin/sh", "-c", command)
    session = await rig.driver.exec(spec.machine_id, ExecSpec(argv=argv, process=process, tty=more.get("tty", False)))
    return await read(session)


# --- every driver


async def test_containers_are_served_or_refused_by_name(rig: Rig) -> None:
    spec = await containers(rig, web=FOREVER)
    if not rig.driver.features.containers:
        with pytest.raises(NotServed, match="containers"):
            await rig.driver.prepare(spec)
        return
    await started(rig, spec)
    (state,) = await rig.driver.process_states(spec.machine_id)
    assert (state.name, state.state) == ("web", ProcessPhase.RUNNING)


async def test_each_container_has_its_files(able: Rig) -> None:
    spec = await containers(able, web="cat /deep/down/file; exit 0", db="cat /deep/down/file; exit 0")
    for index, content in enumerate((b"of web\n", b"of db\n")):
        spec = but(spec, index, files=(FileSpec(path="/deep/down/file", content=content, mode=0o600),))
    await started(able, spec)
    await says(able, spec, b"of web\n", 0)
    await says(able, spec, b"of db\n", 1)


async def test_a_command_runs_beside_the_process_it_names(able: Rig) -> None:
    spec = await containers(able, web=FOREVER, db=FOREVER)
    spec = but(but(spec, 0, env={"ROLE": "web"}), 1, env={"ROLE": "db"})
    await started(able, spec)
    assert await run(able, spec, "echo $ROLE", 0) == b"web\n"
    assert await run(able, spec, "echo $ROLE", 1) == b"db\n"


async def test_a_command_beside_no_process_is_refused(able: Rig) -> None:
    spec = await started(able, await containers(able, web=FOREVER))
    with pytest.raises(BadRequest, match="no process number 1"):
        await run(able, spec, "true", 1)


async def test_processes_say_which_container_they_are_of(able: Rig) -> None:
    spec = await started(able, await containers(able, web=("sleep", "901"), db=("sleep", "902")))

    async def are_so() -> bool:
        """One that is at its exec has no command yet."""
        found = {process.command: process.container for process in await able.driver.processes(spec.machine_id)}
        return found == {"sleep 901": "web", "sleep 902": "db"}

    await eventually(are_so)


# --- those that run programs


async def test_a_container_sees_its_own_root_alone(real: Rig) -> None:
    spec = await containers(real, web=FOREVER, db=FOREVER)
    (Path(spec.processes[0].root or "") / "mark").write_text("web\n")
    (Path(spec.processes[1].root or "") / "mark").write_text("db\n")
    await started(real, spec)
    assert [await run(real, spec, "cat /mark", index) for index in (0, 1)] == [b"web\n", b"db\n"]
    assert await run(real, spec, "ls /.hawker 2>&1 || true; ls /proc/1/root/ 2>&1 >/dev/null | cat") != b""


async def test_an_empty_directory_is_root_enough_for_the_machine_itself(real: Rig, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    spec = await containers(real, web="echo up; exit 0")
    spec = await started(real, msgspec.structs.replace(spec, rootfs=str(tmp_path / "empty")))
    await says(real, spec, b"up\n")


async def test_containers_share_process_ids_and_host_name(real: Rig) -> None:
    spec = await started(real, await containers(real, web=("sleep", "901"), db=FOREVER))
    (web, _) = await real.driver.process_states(spec.machine_id)

    async def is_seen() -> bool:
        return b"sleep\x00901" in await run(real, spec, f"cat /proc/{web.pid}/cmdline", 1)

    await eventually(is_seen)  # it may be at its exec still
    assert await run(real, spec, "hostname", 1) == b"under-test\n"


async def test_a_user_is_looked_up_in_the_container(real: Rig) -> None:
    spec = await containers(real, web="grep Uid: /proc/self/status; exit 0", db=FOREVER)
    spec = but(spec, 0, user="app")
    passwd = Path(spec.processes[0].root or "") / "etc/passwd"
    passwd.write_text("root:x:0:0::/:/bin/sh\napp:x:4242:4242::/:/bin/sh\n")
    await started(real, spec)
    await says(real, spec, b"Uid:\t4242\t4242\t4242\t4242\n")


async def test_a_user_that_the_container_does_not_know_is_the_reason_of_its_end(real: Rig) -> None:
    spec = await started(real, but(await containers(real, web=FOREVER, db=FOREVER), 0, user="stranger"))
    await final(real, spec)
    (web, db) = await real.driver.process_states(spec.machine_id)
    assert web.exit is not None and (web.exit.exit_code, web.exit.reason) == (
        126,
        "user stranger not found in /etc/passwd",
    )
    assert db.state is ProcessPhase.RUNNING


async def test_a_command_has_the_user_and_the_cwd_of_its_process(real: Rig) -> None:
    spec = await containers(real, web=FOREVER, db=FOREVER)
    spec = await started(real, but(spec, 1, user="4242:4343", cwd="/srv"))
    script = "grep -E '^(Uid|Gid)' /proc/self/status; echo $PWD"
    assert (await run(real, spec, script, 1)).split()[1:11:5] == [b"4242", b"4343"]
    assert (await run(real, spec, script, 1)).endswith(b"\n/srv\n")
    assert (await run(real, spec, script, 0)).endswith(b"\n/\n")


async def test_a_workload_may_have_a_terminal(real: Rig) -> None:
    spec = but(
        await containers(real, web="test -t 0 && test -c $(ls -d /dev/pts/0) && echo there; exit 0"), 0, tty=True
    )
    await says(real, await started(real, spec), b"there\r\n")


async def test_a_missing_cwd_is_made(real: Rig) -> None:
    spec = but(await containers(real, web="echo $PWD; exit 0"), 0, cwd="/srv/app")
    await says(real, await started(real, spec), b"/srv/app\n")


async def test_files_of_a_container_stay_in_its_root(real: Rig) -> None:
    """Where a link of its own leads it as one that lives there."""
    spec = await containers(real, web="cat /real/conf; exit 0")
    root = Path(spec.processes[0].root or "")
    (root / "real").mkdir()
    (root / "etc/app").symlink_to("/real")
    spec = but(spec, 0, files=(FileSpec(path="/etc/app/conf", content=b"words\n"),))
    await says(real, await started(real, spec), b"words\n")
    assert (root / "real/conf").read_bytes() == b"words\n"
    assert not (Path(spec.rootfs or "") / "real").exists()


async def test_a_file_that_cannot_be_written_ends_the_container(real: Rig) -> None:
    spec = await containers(real, web=FOREVER, db=FOREVER)
    spec = but(spec, 0, files=(FileSpec(path="/etc", content=b""),))
    await started(real, spec)
    await final(real, spec)
    (web, db) = await real.driver.process_states(spec.machine_id)
    assert web.exit is not None and web.exit.reason == "write /etc: is a directory"
    assert db.state is ProcessPhase.RUNNING


async def test_each_run_begins_with_the_files_as_given(real: Rig) -> None:
    spec = await containers(real, web="cat /conf; echo spoilt > /conf; exit 0")
    spec = but(spec, 0, files=(FileSpec(path="/conf", content=b"given\n"),))
    await started(real, spec)
    await final(real, spec)
    await real.driver.start_process(spec.machine_id, 0, 2)
    await says(real, spec, b"given\ngiven\n")


async def test_a_shared_directory_is_one_in_both(real: Rig, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    spec = await containers(real, web=FOREVER, db=FOREVER)
    source = str(tmp_path / "shared")
    spec = but(spec, 0, mounts=(MountSpec(source=source, target="/data"),))
    spec = but(spec, 1, mounts=(MountSpec(source=source, target="/var/lib/data", read_only=True),))
    await started(real, spec)
    await run(real, spec, "echo words > /data/file", 0)
    assert await run(real, spec, "cat /var/lib/data/file", 1) == b"words\n"
    assert b"Read-only" in await run(real, spec, "echo other 2>&1 > /var/lib/data/file", 1)
    assert (tmp_path / "shared/file").read_text() == "words\n"


async def test_a_mount_follows_the_links_of_its_container(real: Rig, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/file").write_text("words\n")
    spec = await containers(real, web=FOREVER)
    root = Path(spec.processes[0].root or "")
    (root / "srv").symlink_to("/real")
    (root / "real").mkdir()
    spec = but(spec, 0, mounts=(MountSpec(source=str(tmp_path / "shared"), target="/srv/data"),))
    await started(real, spec)
    assert await run(real, spec, "cat /srv/data/file /real/data/file") == b"words\nwords\n"


@pytest.mark.parametrize("target", ["/", "/proc/x", "/trap"])
async def test_nothing_is_mounted_over_the_kernel_s_own(real: Rig, tmp_path: Path, target: str) -> None:
    spec = await containers(real, web=FOREVER)
    (Path(spec.processes[0].root or "") / "trap").symlink_to("/dev")
    with pytest.raises(BadRequest, match="nothing can be mounted"):
        await real.driver.prepare(but(spec, 0, mounts=(MountSpec(source=str(tmp_path), target=target),)))


async def test_a_root_that_is_not_there_is_refused(real: Rig) -> None:
    spec = but(await containers(real, web=FOREVER), 0, root="/nowhere/at/all")
    with pytest.raises(WrongState, match="not mounted"):
        await real.driver.prepare(spec)


async def test_the_usual_devices_are_there(real: Rig) -> None:
    spec = await started(real, await containers(real, web=FOREVER))
    script = (
        "for each in null zero full random urandom tty ptmx fd stdin pts shm; do test -e /dev/$each || echo $each; done"
    )
    assert await run(real, spec, script) == b""
    assert await run(real, spec, "echo gone > /dev/null; head -c 3 /dev/zero | grep -c .") != b""
    assert await run(real, spec, "echo kept > /dev/shm/file; cat /dev/shm/file") == b"kept\n"


async def test_a_terminal_has_a_name_in_the_container(real: Rig) -> None:
    spec = await started(real, await containers(real, web=FOREVER))
    seen = await run(real, spec, "ls -l /proc/self/fd/0; stty size", tty=True)
    name = seen.split(b"-> ")[1].split()[0].decode()
    assert name.startswith("/dev/pts/") and b"24 80" in seen
    assert await run(real, spec, "test -c /dev/pts/0 && echo there", tty=True) == b"there\r\n"


async def test_the_kernel_s_switches_are_shut_in_every_container(real: Rig) -> None:
    """As they are in a machine without containers, whatever this host's kernel has of them."""
    plain = await real.started(FOREVER)
    shut = covered(await run(real, plain, "cat /proc/self/mountinfo"))
    assert {"/proc/sys", "/proc/keys"} <= shut, "or this test shows nothing"
    spec = await started(real, await containers(real, web=FOREVER, db=FOREVER))
    for index in (0, 1):
        assert covered(await run(real, spec, "cat /proc/self/mountinfo", index)) == shut
        assert b"Read-only" in await run(real, spec, "echo 0 2>&1 > /proc/sys/kernel/panic", index)
        assert b"denied" in await run(real, spec, "mount -t tmpfs tmpfs /tmp 2>&1", index)


def covered(mountinfo: bytes) -> set[str]:
    """What is mounted over something in /proc and /sys."""
    places = (line.split()[4].decode() for line in mountinfo.splitlines())
    return {place for place in places if place.startswith(("/proc/", "/sys/"))}


@pytest.mark.parametrize("name", ["proc", "dev", "sys"])
async def test_a_link_in_the_place_of_the_kernel_s_own_is_replaced(real: Rig, name: str) -> None:
    spec = await containers(real, web=FOREVER)
    root = Path(spec.processes[0].root or "")
    (root / name).rmdir()
    (root / name).symlink_to("/tmp")
    await started(real, spec)
    shut = await run(real, spec, "echo 0 2>&1 > /proc/sys/kernel/panic || true; test -c /dev/null && echo there")
    assert b"Read-only" in shut and b"there" in shut


async def test_the_memory_limit_s_victim_is_known(real: Rig) -> None:
    """And who ends for another reason later is not taken for one."""
    script = "x=a; while true; do x=$x$x; done"
    spec = await started(real, await containers(real, hog=script, web=FOREVER))
    await final(real, spec)
    (hog, web) = await real.driver.process_states(spec.machine_id)
    assert hog.exit is not None and hog.exit.oom_killed
    assert web.state is ProcessPhase.RUNNING
    ended = await real.driver.stop_process(spec.machine_id, 1, "SIGKILL", 5)
    assert ended.exit is not None and not ended.exit.oom_killed
    assert (await real.driver.conclude(spec.machine_id, 1)) == ended.exit


@pytest.mark.parametrize("user", ["", "4242:4242"])
async def test_a_process_that_left_its_session_and_its_parent_ends_with_its_run(real: Rig, user: str) -> None:
    spec = await containers(real, web="(setsid sleep 979 &); while test ! -e /tmp/go; do sleep 0.05; done", db=FOREVER)
    (Path(spec.processes[0].root or "") / "tmp").chmod(0o777)
    spec = await started(real, but(spec, 0, user=user))

    async def whose() -> str | None:
        found = await real.driver.processes(spec.machine_id)
        return next((process.container for process in found if process.command == "sleep 979"), None)

    async def gone() -> bool:
        return await whose() is None

    assert await eventually(whose) == "web"
    await run(real, spec, "echo > /tmp/go")
    await final(real, spec)
    await eventually(gone)
    (_, db) = await real.driver.process_states(spec.machine_id)
    assert db.state is ProcessPhase.RUNNING


async def test_a_command_in_a_container_ends_with_its_run(real: Rig) -> None:
    spec = await started(real, await containers(real, web=FOREVER, db=FOREVER))
    sessions = [await real.driver.exec(spec.machine_id, ExecSpec(argv=FOREVER, process=index)) for index in (0, 1)]

    async def in_containers() -> list[str]:
        return sorted(each.container for each in await real.driver.processes(spec.machine_id) if each.container)

    async def all_run() -> bool:
        return await in_containers() == ["db", "db", "web", "web"]

    await eventually(all_run)  # what was asked for may have to begin yet
    await real.driver.stop_process(spec.machine_id, 0, "SIGTERM", 60)
    assert (await sessions[0].wait()).signal == 9
    assert await in_containers() == ["db", "db"]
    await sessions[1].close()


async def test_the_mark_of_a_container_changes_nothing_else(real: Rig) -> None:
    spec = await started(real, await containers(real, web=FOREVER))
    limits = await run(real, spec, "cat /proc/self/limits")
    plain = await run(real, await real.started(FOREVER), "cat /proc/self/limits")
    changed = [line for line in limits.splitlines() if line not in plain.splitlines()]
    assert [line.split()[:3] for line in changed] == [[b"Max", b"realtime", b"timeout"]]


async def test_nothing_of_its_roots_is_left_mounted(real: Rig) -> None:
    spec = await started(real, await containers(real, web=FOREVER, db="exit 0"))
    await final(real, spec, 1)
    await real.driver.destroy(spec.machine_id)
    assert not [mount for mount in mounts() if spec.machine_id in str(mount.target)]


async def test_a_held_container_is_started_by_a_later_daemon(real: Rig) -> None:
    spec = await started(real, but(await containers(real, web=FOREVER, db="echo up; exit 0"), 1, held=True))
    await real.renew().start_process(spec.machine_id, 1, 1)
    await says(real, spec, b"up\n", 1)


async def test_files_of_the_host_are_written_anew_before_each_run(real: Rig, tmp_path: Path) -> None:
    source = tmp_path / "large"
    source.write_bytes(b"large\n" * 20_000)
    spec = await containers(real, web="cat /deep/down/file; : > /deep/down/file; exit 0")
    spec = await started(real, but(spec, 0, files=(FileSpec(path="/deep/down/file", source=str(source)),)))
    for run in (1, 2):
        if run == 2:
            await real.driver.start_process(spec.machine_id, 0, 2)
        await says(real, spec, run * source.read_bytes())
