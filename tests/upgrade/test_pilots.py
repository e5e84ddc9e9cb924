"""A machine outlives the hawker that started it: a pilot of an earlier version goes on under this one, and one of this
version under an earlier hawker. Of each earlier version it is the last commit whose pilot spoke that one."""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.errors import WrongState
from hawker.runtime.driver import ExecSpec, Phase, ProcessPhase, ProcessState
from hawker.runtime.pilot import frames, requests
from hawker.runtime.pilot.driver import ATTACH_VERSION, PilotDriver
from hawker.runtime.pilot.processes import FIRST_VERSION
from hawker.runtime.process import process_driver
from hawker.runtime.spec import Ends, InstanceSpec
from tests.runtime.plain import MACHINE, spec
from tests.upgrade.builds import ROOT

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.long(
        reason="compiles the pilot of each earlier version; in test_deploys.py machines outlive daemons of the version "
        "before and of this one"
    ),
]

_BUILD = """
from pathlib import Path
import hatch_build as b

here = Path.cwd()
programs = b.programs_dir(here)
programs.mkdir(parents=True, exist_ok=True)
b.compile_program(here, b.compiler_for(here, b.guest_target()), b.sources_of(here, "pilot"), programs / "pilot")
"""
_WITHIN_S = 900  # a compiler without its cache, on a busy host

_EARLIER = """
import asyncio, json, sys
from pathlib import Path
import msgspec
from hawker.clock import SystemClock
from hawker.runtime.driver import ExecSpec, InstanceSpec
from hawker.runtime.process import process_driver

async def main(place, action, given):
    driver = process_driver(Path(place), SystemClock())
    spec = msgspec.json.decode(given, type=InstanceSpec)
    if action == "start":
        await driver.start(spec)
    found = await driver.inspect(spec.machine_id)
    said = {"phase": found.phase.value, "pid": found.pid}
    if action == "use":
        await driver.start(spec)
        session = await driver.exec(spec.machine_id, ExecSpec(argv=("/bin/echo", "heard")))
        said["heard"] = b"".join([data async for _, data in session.output()]).decode()
        said["processes"] = [each.command for each in await driver.processes(spec.machine_id)]
        exit = await driver.stop(spec.machine_id, "SIGTERM", 5)
        said["exit"] = [exit.exit_code, exit.signal]
    print(json.dumps(said))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="session", params=range(frames.OLDEST_VERSION, frames.VERSION))
def earlier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its source, with its pilot built; a machine of the process driver uses no other program. What came after it said
    that it speaks one version more."""
    version: int = request.param
    listing = ["git", "log", "--format=%H", f"-SPROTOCOL_VERSION = {version + 1}", "--", "guest/protocol.h"]
    try:
        commits = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    except FileNotFoundError:
        commits = []
    if not commits:
        pytest.skip(f"there is no history here in which the pilot spoke version {version}")
    source = tmp_path_factory.mktemp("earlier")
    archive = subprocess.run(["git", "archive", f"{commits[-1]}^"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip("the history here does not go back to a pilot of an earlier version")
    subprocess.run(["tar", "x", "-C", source], input=archive.stdout, check=True)
    cache = str(ROOT / "build/zig")
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    subprocess.run([sys.executable, "-c", _BUILD], cwd=source, env=environment, check=True, timeout=_WITHIN_S)
    return source


def version_of(earlier: Path) -> int:
    said = re.search(r"PROTOCOL_VERSION = (\d+)", (earlier / "guest/protocol.h").read_text())
    assert said is not None
    return int(said[1])


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[PilotDriver]:
    made = process_driver(tmp_path / "machines", SystemClock())
    with anyio.fail_after(200):
        yield made
    await made.destroy(MACHINE)


async def ask(earlier: Path, machines: Path, action: str, instance: InstanceSpec) -> dict[str, Any]:
    """What the earlier hawker, as a daemon of its own, makes of it."""
    given = msgspec.json.encode(instance).decode()
    command = [sys.executable, "-P", "-W", "ignore", "-c", _EARLIER, str(machines), action, given]
    environment = {**os.environ, "PYTHONPATH": str(earlier / "src")}
    done = await anyio.run_process(command, env=environment, stderr=sys.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_earlier_pilot_is_of_an_earlier_version(earlier: Path) -> None:
    assert version_of(earlier) < frames.VERSION


async def test_a_machine_of_the_earlier_version_goes_on_under_this_one(
    earlier: Path, driver: PilotDriver, tmp_path: Path
) -> None:
    running = spec("echo up; exec sleep 1000")
    before = await ask(earlier, tmp_path / "machines", "start", running)
    found = await driver.start(running)
    assert (found.phase, found.pid) == (Phase.RUNNING, before["pid"])
    (state,) = await driver.process_states(MACHINE)
    assert (state.state, state.run, state.exit) == (ProcessPhase.RUNNING, 1, None)
    session = await driver.exec(MACHINE, ExecSpec(argv=("/bin/echo", "heard")))
    assert [data async for _, data in session.output()] == [b"heard\n"]
    assert "sleep 1000" in {process.command for process in await driver.processes(MACHINE)}
    assert (await driver.stop(MACHINE, "SIGTERM", 5)).signal == 15
    (state,) = await driver.process_states(MACHINE)
    assert state.exit is not None and state.exit.signal == 15


async def test_a_request_the_earlier_pilot_does_not_know_is_refused_and_harms_nothing(
    earlier: Path, driver: PilotDriver, tmp_path: Path
) -> None:
    running = spec("exec sleep 1000")
    running = msgspec.structs.replace(running, processes=running.processes * 2)
    await ask(earlier, tmp_path / "machines", "start", running)
    async with driver._link.open(MACHINE) as pilot:
        assert pilot.version == version_of(earlier)
        if pilot.version < requests.GROW_VERSION:
            with pytest.raises(WrongState, match="started by an older version"):
                await requests.grow(pilot, "/")
        with pytest.raises(WrongState, match="started by an older version"):
            await requests.trim(pilot, "/", 0, 1)
    if version_of(earlier) < ATTACH_VERSION:
        with pytest.raises(WrongState, match="started by an older version"):
            await driver.attach(MACHINE, 0)
    if version_of(earlier) < FIRST_VERSION:
        for call in (
            driver.start_process(MACHINE, 0, 2),
            driver.stop_process(MACHINE, 0, "SIGTERM", 1),
            driver.exec(MACHINE, ExecSpec(argv=("true",), process=1)),
        ):
            with pytest.raises(WrongState, match="started by an older version"):
                await call
    assert (await driver.inspect(MACHINE)).phase is Phase.RUNNING


async def test_a_waiting_caller_hears_of_the_end_of_an_earlier_machine(
    earlier: Path, driver: PilotDriver, tmp_path: Path
) -> None:
    await ask(earlier, tmp_path / "machines", "start", spec("exec sleep 1000"))
    seen = await driver.process_states(MACHINE)
    heard: list[tuple[ProcessState, ...]] = []

    async def wait() -> None:
        heard.append(await driver.await_process_change(MACHINE, seen))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await driver.stop(MACHINE, "SIGTERM", 5)
    assert heard[0][0].state is ProcessPhase.EXITED


@pytest.mark.parametrize("ends", list(Ends))
async def test_a_machine_of_this_version_goes_on_under_the_earlier_one(
    earlier: Path, driver: PilotDriver, tmp_path: Path, ends: Ends
) -> None:
    """Also one that the earlier version could not have started."""
    running = msgspec.structs.replace(spec("exec sleep 1000"), ends=ends)
    found = await driver.start(running)
    said = await ask(earlier, tmp_path / "machines", "use", running)
    assert said["phase"] == "running" and said["pid"] == found.pid
    assert said["heard"] == "heard\n" and "sleep 1000" in said["processes"]
    assert said["exit"] == [143, 15]
    exit = await driver.wait(MACHINE)
    assert (exit.exit_code, exit.signal) == (143, 15)


async def test_an_end_that_is_not_the_machine_s_is_not_taken_for_it_by_the_earlier_one(
    earlier: Path, driver: PilotDriver, tmp_path: Path
) -> None:
    running = msgspec.structs.replace(spec("exit 3"), ends=Ends.TOLD)
    await driver.start(running)
    states = await driver.process_states(MACHINE)
    while states[0].exit is None:
        states = await driver.await_process_change(MACHINE, states)
    assert (await ask(earlier, tmp_path / "machines", "look", running))["phase"] == "running"
