"""How machines end: asked to, by themselves, or by the kernel; and what follows by the machine's policy."""

from itertools import pairwise
from typing import Any

import pytest

from tests.e2e.shop import HELLO, Shop
from tests.e2e.web import answers, ask, told
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]

STUBBORN = "trap 'echo hup' HUP; trap 'echo int' INT; echo ready; while :; do sleep 0.05; done"


def shell(image: str, script: str, **fields: Any) -> dict[str, Any]:
    return {"image": image, "init": {"exec": ["sh", "-c", script]}, **fields}


async def test_a_stop_sends_the_machines_own_signal_and_kills_what_does_not_end(shop: Shop, toolbox_image: str) -> None:
    stop = {"signal": "SIGHUP", "timeout": "5500ms"}
    machine = await shop.run(shell(toolbox_image, STUBBORN, stop_config=stop))
    await shop.logged(machine.id, "ready")
    await shop.stop(machine.id)
    await shop.wait(machine.id, "stopped")
    (exit,) = await shop.exits(machine.id)
    assert (exit.exit_code, exit.guest_signal, exit.requested_stop, exit.oom_killed) == (137, 9, True, False)
    assert await shop.logs(machine.id) == "ready\nhup\n"


async def test_a_stop_may_say_how(shop: Shop, toolbox_image: str) -> None:
    script = "trap 'echo bye; exit 4' TERM; echo ready; while :; do sleep 0.05; done"
    machine = await shop.run(shell(toolbox_image, script, stop_config={"timeout": "60s"}))
    await shop.logged(machine.id, "ready")
    await shop.stop(machine.id, signal="SIGTERM", timeout="60s")
    await shop.wait(machine.id, "stopped")
    assert [exit.exit_code for exit in await shop.exits(machine.id)] == [4]
    assert await shop.logs(machine.id) == "ready\nbye\n"


@pytest.mark.parametrize("policy", ["no", "on-failure"])
async def test_a_machine_that_ends_well_rests(shop: Shop, policy: str) -> None:
    machine = await shop.run({"image": HELLO, "restart": {"policy": policy}})
    told(machine.private_ip, "/exit/0", method="POST")
    await shop.wait(machine.id, "stopped")
    (exit,) = await shop.exits(machine.id)
    assert (exit.exit_code, exit.requested_stop, exit.restarting) == (0, False, False)


@pytest.mark.parametrize(("policy", "code"), [("on-failure", 3), ("always", 0)])
async def test_a_machine_that_ends_against_its_policy_is_started_again(shop: Shop, policy: str, code: int) -> None:
    machine = await shop.run({"image": HELLO, "restart": {"policy": policy}})
    first = await shop.pid(machine.id)
    told(machine.private_ip, f"/exit/{code}", method="POST")
    await eventually(lambda: _has_started_twice(shop, machine.id))
    assert await shop.pid(machine.id) != first
    (exit,) = await shop.exits(machine.id)
    assert (exit.exit_code, exit.restarting) == (code, True)


async def _has_started_twice(shop: Shop, machine_id: str) -> bool:
    return [event.status for event in await shop.events(machine_id)].count("started") == 2


async def test_a_machine_that_exits_at_once_is_tried_slower_and_slower(shop: Shop) -> None:
    """0.5, 1, 2 s and so on, each with jitter: the fourth try cannot come before 2.6 s after the first."""
    machine = await shop.order({"image": HELLO, "init": {"cmd": ["exit", "1"]}, "restart": {"policy": "always"}})
    await eventually(lambda: _has_exited(shop, machine.id, 3))
    times = [event.timestamp for event in await shop.events(machine.id) if event.type == "exit"]
    gaps_ms = [after - before for before, after in pairwise(times)]
    assert gaps_ms[0] >= 375 and gaps_ms[1] >= 750
    await shop.stop(machine.id)
    assert (await shop.wait(machine.id, "stopped")).state == "stopped"
    count = len(await shop.exits(machine.id))
    await eventually(lambda: _all_ended(shop, machine.id))
    assert len(await shop.exits(machine.id)) == count


async def _has_exited(shop: Shop, machine_id: str, times: int) -> bool:
    return len(await shop.exits(machine_id)) >= times


async def _all_ended(shop: Shop, machine_id: str) -> bool:
    return all(run.ended_at for run in await shop.runs(machine_id))


async def test_a_machine_that_keeps_failing_rests_after_its_last_try(shop: Shop) -> None:
    restart = {"policy": "on-failure", "max_retries": 2}
    machine = await shop.order({"image": HELLO, "init": {"cmd": ["exit", "5"]}, "restart": restart})
    await shop.wait(machine.id, "stopped")
    exits = await shop.exits(machine.id)
    assert [(exit.exit_code, exit.restarting) for exit in exits] == [(5, True), (5, True), (5, False)]


async def test_a_command_that_does_not_exist_says_so(shop: Shop) -> None:
    machine = await shop.order({"image": HELLO, "init": {"exec": ["/no/such"]}, "restart": {"policy": "no"}})
    await shop.wait(machine.id, "stopped")
    (exit,) = await shop.exits(machine.id)
    assert exit.exit_code == 127
    assert "/no/such" in exit.reason and "no such file" in exit.reason.lower()
    assert "started" not in [event.status for event in await shop.events(machine.id)]


async def test_a_user_that_does_not_exist_says_so(shop: Shop) -> None:
    processes = [{"cmd": ["8080"], "user": "nosuchuser"}]
    machine = await shop.order({"image": HELLO, "processes": processes, "restart": {"policy": "no"}})
    await shop.wait(machine.id, "stopped")
    (exit,) = await shop.exits(machine.id)
    assert exit.exit_code != 0 and "nosuchuser" in exit.reason


async def test_an_out_of_memory_kill_is_told_as_one(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO, "guest": {"memory_mb": 64}, "restart": {"policy": "no"}})
    await eventually(lambda: answers(machine.private_ip))
    with pytest.raises(OSError):
        ask(machine.private_ip, "/burn/200")
    await shop.wait(machine.id, "stopped")
    (exit,) = await shop.exits(machine.id)
    assert (exit.oom_killed, exit.exit_code, exit.guest_signal) == (True, 137, 9)


async def test_a_machine_that_is_to_go_with_its_process_is_destroyed(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO, "auto_destroy": True, "restart": {"policy": "no"}})
    told(machine.private_ip, "/exit/6", method="POST")
    await shop.gone(machine.id)
    assert [exit.exit_code for exit in await shop.exits(machine.id)] == [6]
    assert await shop.machines() == []


async def test_a_machine_that_went_by_itself_leaves_no_layer(shop: Shop) -> None:
    """A rest is a run too: it gives back what the instance wrote."""
    machine = await shop.run({"image": HELLO, "restart": {"policy": "no"}})
    told(machine.private_ip, "/exit/0", method="POST")
    await shop.wait(machine.id, "stopped")
    await eventually(lambda: _all_ended(shop, machine.id))
    assert [run.flow for run in await shop.runs(machine.id)] == ["create", "rest"]


CHECKS = {
    "alive": {"type": "tcp", "port": 8080, "interval": "1s", "grace_period": "1ms"},
    "well": {"type": "http", "port": 8080, "path": "/health", "interval": "1s", "grace_period": "1ms"},
    "deaf": {"type": "tcp", "port": 9, "interval": "1s", "grace_period": "1ms"},
    "lost": {"type": "http", "port": 8080, "path": "/nowhere", "interval": "1s", "grace_period": "1ms"},
}


SERVICE = {
    "internal_port": 8080,
    "protocol": "tcp",
    "ports": [{"port": 80, "handlers": ["http"]}, {"port": 443, "handlers": ["http", "tls"]}],
    "autostop": "off",
    "checks": [
        {"type": "tcp", "interval": "1s", "grace_period": "1ms"},
        {"type": "http", "path": "/nowhere", "interval": "1s", "grace_period": "1ms"},
    ],
}


async def test_checks_of_services_run_under_the_names_that_clients_know(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO, "services": [SERVICE]})
    wanted = {"servicecheck-00-tcp-8080": "passing", "servicecheck-01-http-8080": "critical"}

    async def told() -> bool:
        return {check.name: check.status for check in (await shop.get(machine.id)).checks} == wanted

    await eventually(told)
    config = (await shop.get(machine.id)).config
    assert config and config.services and config.services[0].autostop is False


async def test_checks_tell_how_the_machine_is(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO, "checks": CHECKS})
    wanted = {"alive": "passing", "well": "passing", "deaf": "critical", "lost": "critical"}

    async def told() -> bool:
        """With the reason: of a look that a busy host let wait it is another one."""
        checks = {check.name: check for check in (await shop.get(machine.id)).checks}
        return {name: check.status for name, check in checks.items()} == wanted and "404" in checks["lost"].output

    await eventually(told)
    assert await shop.exits(machine.id) == []
