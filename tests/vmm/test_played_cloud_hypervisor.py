"""What the played Cloud Hypervisor refuses, so that a driver that goes wrong does not pass."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vmm.guests import NoGuest
from tests.vmm.played_cloud_hypervisor import PlayedCloudHypervisor
from tests.vmm.vmm_server import VmmServer

Call = tuple[str, Any]
CONFIG = {
    "payload": {"kernel": "kernel"},
    "cpus": {"boot_vcpus": 1, "max_vcpus": 1},
    "memory": {"size": 1 << 27},
    "disks": [{"id": "a", "path": "kernel", "readonly": True}],
    "balloon": {"size": 0},
}
CREATE: Call = ("vm.create", CONFIG)
BOOT, PAUSE, RESUME = ("vm.boot", None), ("vm.pause", None), ("vm.resume", None)
SAVE, RESTORE = ("vm.snapshot", {"destination_url": "file://."}), ("vm.restore", {"source_url": "file://."})
GROW: Call = ("vm.resize-disk", {"id": "a", "desired_size": 4096})
SHRINK: Call = ("vm.resize", {"desired_balloon": 1 << 20})


def config(**fields: Any) -> Call:
    return "vm.create", {**CONFIG, **fields}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VmmServer]:
    monkeypatch.chdir(tmp_path)
    Path("kernel").touch()
    with VmmServer(Path("s"), PlayedCloudHypervisor(NoGuest())) as made:
        yield made


def ask(server: VmmServer, call: Call) -> tuple[int, object]:
    method = "GET" if call[0] in ("vm.info", "vmm.ping") else "PUT"
    reply = server.decide(method, f"/api/v1/{call[0]}", b"" if call[1] is None else json.dumps(call[1]).encode())
    return reply.status, reply.body


@pytest.mark.parametrize(
    "calls",
    [
        (("vmm.ping", None), CREATE, BOOT, ("vm.info", None), ("vm.shutdown", None), BOOT, ("vm.delete", None), CREATE),
        (CREATE, BOOT, PAUSE, SAVE, RESUME, GROW, SHRINK),
        (CREATE, SHRINK, BOOT, ("vmm.shutdown", None)),
    ],
)
def test_a_right_call_is_done(server: VmmServer, calls: tuple[Call, ...]) -> None:
    assert all(ask(server, call)[0] in (200, 204) for call in calls)


@pytest.mark.parametrize(
    ("before", "call", "status"),
    [
        ((), BOOT, 404),
        ((), ("vm.info", None), 404),
        ((), SHRINK, 404),
        ((), GROW, 404),
        ((), PAUSE, 500),
        ((), RESUME, 500),
        ((), SAVE, 500),
        ((), RESTORE, 500),
        ((CREATE,), CREATE, 500),
        ((CREATE,), PAUSE, 500),
        ((CREATE,), RESTORE, 500),
        ((CREATE,), GROW, 500),
        ((CREATE, BOOT), BOOT, 500),
        ((CREATE, BOOT), RESUME, 500),
        ((CREATE, BOOT), SAVE, 500),
        ((CREATE, BOOT), ("vm.resize-disk", {"id": "b", "desired_size": 1}), 500),
        ((CREATE, BOOT), ("vm.resize", {"desired_balloon": 1 << 40}), 500),
        ((CREATE, BOOT, PAUSE), PAUSE, 500),
        ((CREATE, BOOT, PAUSE), ("vm.snapshot", {"destination_url": "file:///nowhere"}), 500),
        ((CREATE, BOOT, PAUSE), ("vm.snapshot", {"destination_url": "."}), 500),
        ((config(payload={}),), BOOT, 500),
        ((config(payload={"kernel": "nowhere"}),), BOOT, 500),
        ((config(disks=[{"id": "a", "path": "nowhere"}]),), BOOT, 500),
        ((config(disks=[*CONFIG["disks"], *CONFIG["disks"]]),), BOOT, 500),  # type: ignore[misc]
        ((config(balloon={"size": 1 << 40}),), BOOT, 500),
        ((config(cpus={"boot_vcpus": 2, "max_vcpus": 1}),), BOOT, 500),
        ((config(net=[{"tap": "tap0", "mtu": 1000}]),), BOOT, 500),
        ((), config(payload=None), 400),
        ((), ("vm.create", {"cpus": CONFIG["cpus"]}), 400),
        ((), config(vsock={"cid": 2, "socket": "v"}), 400),
        ((), config(serial={"mode": "tty"}), 400),
        ((), config(disks=[{"path": "kernel", "image_type": "raw"}]), 400),
        ((), config(memory={"size": "128M"}), 400),
        ((), config(disk=[]), 400),
        ((), ("vm.create", None), 400),
        ((), ("vm.boot", {}), 400),
        ((), ("vm.nothing", None), 404),
    ],
)
def test_a_wrong_or_untimely_call_is_refused_with_a_chain_of_reasons(
    server: VmmServer, before: tuple[Call, ...], call: Call, status: int
) -> None:
    assert all(ask(server, each)[0] == 204 for each in before)
    found, body = ask(server, call)
    assert found == status
    assert isinstance(body, list) and body and all(isinstance(link, str) and link for link in body)


def test_a_snapshot_goes_on_in_a_fresh_one_and_nowhere_else(server: VmmServer) -> None:
    for call in (CREATE, BOOT, PAUSE, SAVE):
        assert ask(server, call)[0] == 204
    fresh = PlayedCloudHypervisor(NoGuest())
    server.vmm = fresh
    assert ask(server, RESTORE)[0] == 204
    assert (fresh.state, fresh.config) == ("Paused", CONFIG)
    assert ask(server, RESTORE)[0] == 500
