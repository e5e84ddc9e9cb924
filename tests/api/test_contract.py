"""Requests as clients in use really send them (contract sections 1, 4 and 5): each reaches its handler, understood."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hawker.api.contract.machine import WaitState
from hawker.api.routes import ROUTES
from hawker.config import guest, restart_policy, stop_config, validate
from hawker.machine import Policy, State
from hawker.runtime.driver import Features
from tests.api.serving import Fake, Served, served

pytestmark = pytest.mark.anyio
MACHINES = "/v1/apps/web/machines"
M = f"{MACHINES}/148e21ea7d1289"
CONTAINER = Features(rootfs=True, network=True, limits=True)

FLYCTL_RUN = {
    "config": {
        "env": {"PRIMARY_REGION": "mad"},
        "init": {},
        "guest": {"cpu_kind": "shared", "cpus": 1, "memory_mb": 256},
        "metadata": {"fly_platform_version": "v2", "fly_process_group": "app"},
        "image": "docker.io/library/nginx:latest",
        "restart": {"policy": "always"},
        "dns": {"skip_registration": True},
    },
    "region": "mad",
    "skip_launch": False,
    "min_secrets_version": None,
}
FLAME = {
    "name": "flame-1",
    "region": "mad",
    "config": {
        "image": "registry.local/app@sha256:" + "0" * 64,
        "init": {"cmd": ["/app/bin/server"]},
        "guest": {"cpu_kind": "performance", "cpus": 2, "memory_mb": 4096, "gpu_kind": None},
        "auto_destroy": True,
        "restart": {"policy": "no"},
        "env": {"PHX_SERVER": "false"},
        "services": [],
        "metadata": {"flame_parent_ip": "fdaa::2"},
    },
}
FLY_ADMIN = {
    "config": {
        "image": "flyio/hellofly:latest",
        "size": "shared-cpu-2x",
        "stop_config": {"signal": "SIGTERM", "timeout": 10_000_000_000},
        "checks": {"httpget": {"type": "http", "port": 8080, "method": "GET", "path": "/", "interval": "15s"}},
        "processes": [{"name": None, "entrypoint": ["/bin/sh"], "cmd": ["-c", "sleep 1"], "env": {"A": "1"}}],
    }
}


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[tuple[Served, Fake]]:
    fake = Fake()
    async with served(fake.handlers(ROUTES)) as node:
        yield node, fake


async def _received(shared: tuple[Served, Fake], method: str, path: str, status: int = 200, **given: Any) -> Any:
    """The call that one request becomes."""
    node, fake = shared
    fake.forget()
    async with node.http.request(method, path, **given) as response:
        assert response.status == status, await response.text()
    return fake.calls[0]


@pytest.mark.parametrize("order", [FLYCTL_RUN, FLAME, FLY_ADMIN], ids=["flyctl", "flame", "fly-admin"])
async def test_an_order_of_every_client_is_understood_and_served(shared: tuple[Served, Fake], order: Any) -> None:
    call = await _received(shared, "POST", MACHINES, json=order)
    validate(call.body.config, CONTAINER)
    assert call.body.config.image == order["config"]["image"]


async def test_the_orders_mean(shared: tuple[Served, Fake]) -> None:
    flame = (await _received(shared, "POST", MACHINES, json=FLAME)).body.config
    assert restart_policy(flame)[0] is Policy.NO and flame.auto_destroy
    admin = (await _received(shared, "POST", MACHINES, json=FLY_ADMIN)).body.config
    assert (guest(admin).cpus, guest(admin).memory_mb, stop_config(admin)) == (2, 512, ("SIGTERM", 10.0))


async def test_apps_are_created_under_either_name(shared: tuple[Served, Fake]) -> None:
    flyctl = {"org_slug": "personal", "name": "web", "app_role_id": "", "network": ""}
    call = await _received(shared, "POST", "/v1/apps?wait=true", 201, json=flyctl)
    assert (call.body.name, call.query.wait) == ("web", True)
    call = await _received(shared, "POST", "/v1/apps", 201, json={"app_name": "web", "org_slug": "personal"})
    assert (call.body.name, call.body.app_name) == (None, "web")


async def test_stop_and_restart_take_what_flyctl_always_sends(shared: tuple[Served, Fake]) -> None:
    call = await _received(shared, "POST", f"{M}/stop", json={"id": "148e21ea7d1289", "signal": "", "timeout": "5s"})
    assert (call.body.signal, call.body.timeout) == ("", "5s")
    assert (await _received(shared, "POST", f"{M}/stop")).body.timeout is None
    call = await _received(shared, "POST", f"{M}/restart?force_stop=false&timeout=5s&signal=SIGTERM")
    assert (call.query.force_stop, call.query.timeout, call.query.signal) == (False, 5.0, "SIGTERM")


@pytest.mark.parametrize("signal", [9, "SIGKILL", "KILL"])
async def test_a_signal_is_a_number_or_a_name(shared: tuple[Served, Fake], signal: int | str) -> None:
    assert (await _received(shared, "POST", f"{M}/signal", json={"signal": signal})).body.signal == signal


@pytest.mark.parametrize(
    ("query", "states", "timeout_s"),
    [
        ("", (), 60.0),
        ("state=started&timeout=60", (WaitState.STARTED,), 60.0),
        ("timeout=60s&state=settled", (WaitState.SETTLED,), 60.0),
        ("state=stopped&state=destroyed&timeout=1m0s", (WaitState.STOPPED, WaitState.DESTROYED), 60.0),
        ("state=started,failed&instance_id=01H", (WaitState.STARTED, WaitState.FAILED), 60.0),
    ],
)
async def test_wait_is_asked_for_in_every_way(
    shared: tuple[Served, Fake], query: str, states: tuple[WaitState, ...], timeout_s: float
) -> None:
    call = await _received(shared, "GET", f"{M}/wait?{query}")
    assert (call.query.state, call.query.timeout) == (states, timeout_s)


async def test_destroy_is_forced_in_either_word(shared: tuple[Served, Fake]) -> None:
    assert (await _received(shared, "DELETE", f"{M}?kill=true")).query.kill
    assert (await _received(shared, "DELETE", f"{M}?force=true")).query.force
    assert not (await _received(shared, "DELETE", f"{M}?kill=false")).query.kill


async def test_a_list_is_filtered_by_state_and_metadata(shared: tuple[Served, Fake]) -> None:
    query = "include_deleted=&region=&state=created,started&metadata.fly_process_group=app&summary=0"
    call = await _received(shared, "GET", f"{MACHINES}?{query}")
    assert call.query.include_deleted and not call.query.summary
    assert call.query.state == (State.CREATED, State.STARTED)
    assert call.query.metadata == {"fly_process_group": "app"}


async def test_exec_takes_a_list_or_the_older_string(shared: tuple[Served, Fake]) -> None:
    call = await _received(shared, "POST", f"{M}/exec", json={"cmd": "ls -l", "timeout": 10})
    assert (call.body.cmd, call.body.command, call.body.timeout) == ("ls -l", None, 10)
    call = await _received(shared, "POST", f"{M}/exec", json={"command": ["ls"], "container": "", "machine": False})
    assert call.body.command == ("ls",)


async def test_a_nonce_is_read_from_the_header_that_fly_go_sends(shared: tuple[Served, Fake]) -> None:
    call = await _received(shared, "POST", f"{M}/start", headers={"Fly-Machine-Lease-Nonce": "bf8e"})
    assert call.nonce == "bf8e"
