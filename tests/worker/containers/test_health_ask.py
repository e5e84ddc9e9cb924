from typing import Any

import anyio
import msgspec
import pytest

from hawker.clock import ManualClock
from hawker.config import Container
from hawker.config.effective import Healthcheck, healthchecks
from hawker.fair.table import CHECKS_OF_MACHINE
from hawker.fair.turns import Turns
from hawker.ids import MachineId
from hawker.runtime.fake_driver import FakeDriver
from hawker.runtime.fake_host import FakeHost
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import FakeProber, MemoryWorld
from hawker.worker.containers.health import Asker
from hawker.worker.health import Probe, ProbeResult

pytestmark = pytest.mark.anyio
CONTAINERS = [{"name": name, "image": "hawker/hello", "exec": ["serve"], "env": {"ME": name}} for name in ("web", "db")]


def check(**given: Any) -> Healthcheck:
    (found,) = healthchecks(msgspec.convert({"name": "web", "healthchecks": [given]}, Container))
    return found


async def asker(worker: SimWorker, stall: MemoryWorld) -> Asker:
    machine_id = await worker.started(containers=CONTAINERS)
    await stall.clock.sleep(0.1)
    return Asker(worker.parts.deps.driver, stall.prober, Turns(CHECKS_OF_MACHINE), MachineId(machine_id), "fdaa::2")


async def asked(**given: Any) -> Probe:
    """As it goes over the network."""
    prober = FakeProber()
    driver = FakeDriver(FakeHost(ManualClock()))
    await Asker(driver, prober, Turns(CHECKS_OF_MACHINE), MachineId("m"), "fdaa::2", "a")(0, check(**given))
    (probe,) = prober.asked
    return probe


async def test_a_connection_is_enough_for_tcp() -> None:
    assert await asked(tcp={"port": 5432}, timeout=3) == Probe(
        host="fdaa::2", port=5432, timeout_s=3.0, app="a", machine="m"
    )


async def test_an_http_check_is_asked_as_it_says() -> None:
    http = {
        "port": 80,
        "method": "head",
        "path": "/up",
        "scheme": "https",
        "headers": [{"name": "A", "values": ["1", "2"]}],
        "tls_skip_verify": True,
        "tls_server_name": "web.example",
    }
    assert await asked(http=http) == Probe(
        host="fdaa::2",
        port=80,
        timeout_s=10.0,
        method="HEAD",
        path="/up",
        headers=(("A", "1"), ("A", "2")),
        tls=True,
        tls_verify=False,
        tls_server_name="web.example",
        app="a",
        machine="m",
    )


async def test_a_command_is_run_in_its_container_and_passes_with_zero(worker: SimWorker, stall: MemoryWorld) -> None:
    ask = await asker(worker, stall)
    assert await ask(1, check(exec={"command": ["sh", "-c", "echo $ME"]})) == ProbeResult(True, "db\n")
    assert await ask(0, check(exec={"command": ["sh", "-c", "echo $ME; exit 4"]})) == ProbeResult(False, "web\n")
    assert await ask(0, check(exec={"command": ["true"]})) == ProbeResult(True, "exited with 0")


async def test_a_command_that_is_not_there_or_takes_too_long_fails(worker: SimWorker, stall: MemoryWorld) -> None:
    ask = await asker(worker, stall)
    missing = await ask(0, check(exec={"command": ["/nope"]}))
    assert not missing.passing and "no such file" in missing.output
    late = await ask(0, check(exec={"command": ["sleep", "60"]}, timeout=2))
    assert late == ProbeResult(False, "the command did not end within 2 s")


async def test_commands_of_one_machine_wait_for_their_turn_before_their_time_begins(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    ask, before = await asker(worker, stall), stall.clock.now()
    found: list[ProbeResult] = []

    async def one() -> None:
        found.append(await ask(0, check(exec={"command": ["sleep", "3"]}, timeout=4)))

    async with anyio.create_task_group() as tasks:
        for _ in range(2 * CHECKS_OF_MACHINE.each):
            tasks.start_soon(one)
    assert all(each.passing for each in found)
    assert stall.clock.now() - before == pytest.approx(6, abs=0.1)


async def test_a_machine_that_is_gone_fails_its_checks(worker: SimWorker, stall: MemoryWorld) -> None:
    gone = MachineId("00000000000009")
    ask = Asker(worker.parts.deps.driver, stall.prober, Turns(CHECKS_OF_MACHINE), gone, "fdaa::2")
    assert not (await ask(0, check(exec={"command": ["true"]}))).passing


async def test_output_of_a_command_is_cut(worker: SimWorker, stall: MemoryWorld) -> None:
    ask = await asker(worker, stall)
    found = await ask(0, check(exec={"command": ["echo", "x" * 10_000]}))
    assert len(found.output) == 2048
