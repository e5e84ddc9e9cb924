"""What the played Firecracker refuses, so that a driver that goes wrong does not pass."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vmm.guests import NoGuest
from tests.vmm.played_firecracker import PlayedFirecracker
from tests.vmm.vmm_server import VmmServer

Call = tuple[str, Any]
START: Call = ("PUT /actions", {"action_type": "InstanceStart"})
PAUSE, RESUME = ("PATCH /vm", {"state": "Paused"}), ("PATCH /vm", {"state": "Resumed"})
SAVE: Call = ("PUT /snapshot/create", {"snapshot_path": "state", "mem_file_path": "memory"})
LOAD: Call = (
    "PUT /snapshot/load",
    {"snapshot_path": "state", "mem_backend": {"backend_type": "File", "backend_path": "memory"}},
)
BOOT: Call = ("PUT /boot-source", {"kernel_image_path": "kernel"})
MACHINE: Call = ("PUT /machine-config", {"vcpu_count": 1, "mem_size_mib": 128})
DRIVE: Call = (
    "PUT /drives/a",
    {"drive_id": "a", "is_root_device": False, "is_read_only": True, "path_on_host": "kernel"},
)
VSOCK: Call = ("PUT /vsock", {"guest_cid": 3, "uds_path": "v"})
BALLOON: Call = ("PUT /balloon", {"amount_mib": 1, "deflate_on_oom": False})


def changed(call: Call, **fields: Any) -> Call:
    return call[0], {**call[1], **fields}


def without(call: Call, field: str) -> Call:
    return call[0], {name: value for name, value in call[1].items() if name != field}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VmmServer]:
    monkeypatch.chdir(tmp_path)
    Path("kernel").touch()
    with VmmServer(Path("s"), PlayedFirecracker(NoGuest())) as made:
        yield made


def ask(server: VmmServer, call: Call) -> tuple[int, object]:
    method, path = call[0].split()
    reply = server.decide(method, path, b"" if call[1] is None else json.dumps(call[1]).encode())
    return reply.status, reply.body


@pytest.mark.parametrize(
    "calls",
    [
        (BOOT, MACHINE, DRIVE, VSOCK, BALLOON, ("PUT /entropy", {}), START, ("GET /", None)),
        (BOOT, START, PAUSE, PAUSE, SAVE, RESUME, RESUME, ("GET /version", None)),
        (BOOT, BALLOON, START, ("PATCH /balloon", {"amount_mib": 4}), ("GET /balloon", None)),
        (BOOT, DRIVE, START, ("PATCH /drives/a", {"drive_id": "a", "path_on_host": "kernel"})),
    ],
)
def test_a_right_call_is_done(server: VmmServer, calls: tuple[Call, ...]) -> None:
    assert all(ask(server, call)[0] in (200, 204) for call in calls)


@pytest.mark.parametrize(
    ("before", "call"),
    [
        ((), START),
        ((), PAUSE),
        ((), SAVE),
        ((), ("PATCH /balloon", {"amount_mib": 1})),
        ((), ("GET /balloon/statistics", None)),
        ((), ("PATCH /drives/a", {"drive_id": "a", "path_on_host": "kernel"})),
        ((), ("GET /balloon", None)),
        ((), changed(BOOT, kernel_image_path="nowhere")),
        ((BOOT, START), START),
        ((BOOT, START), DRIVE),
        ((BOOT, START), VSOCK),
        ((BOOT, START), BALLOON),
        ((BOOT, START), MACHINE),
        ((BOOT, START), BOOT),
        ((BOOT, START), SAVE),
        ((BOOT, START), LOAD),
        ((BOOT, START), ("PATCH /drives/b", {"drive_id": "b", "path_on_host": "kernel"})),
        ((BOOT, DRIVE, START), ("PATCH /drives/a", {"drive_id": "a"})),
        ((BOOT, BALLOON, START), ("GET /balloon/statistics", None)),
        ((BOOT, BALLOON, START), ("PATCH /balloon", {"amount_mib": 129})),
        ((BOOT,), LOAD),
        ((), changed(BALLOON, amount_mib=129)),
        ((), ("PUT /drives/b", DRIVE[1])),
        ((), ("PUT /drives/a-b", {**DRIVE[1], "drive_id": "a-b"})),
        ((), changed(DRIVE, path_on_host="nowhere")),
        ((), without(DRIVE, "is_read_only")),
        ((), without(DRIVE, "is_root_device")),
        ((), changed(DRIVE, serial="a")),
        ((), changed(DRIVE, cache_type="writeback")),
        ((), changed(DRIVE, rate_limiter={"bandwidth": {"size": 1}})),
        ((), changed(DRIVE, rate_limiter={"ops": {"size": -1, "refill_time": 1}})),
        ((), changed(MACHINE, vcpu_count=33)),
        ((), changed(MACHINE, mem_size_mib="128")),
        ((), changed(VSOCK, guest_cid=2)),
        ((), ("PUT /entropy", None)),
        ((), ("GET /version", {})),
        ((), ("PUT /nowhere", {})),
        ((), ("DELETE /vsock", None)),
    ],
)
def test_a_wrong_or_untimely_call_is_refused_with_a_word(
    server: VmmServer, before: tuple[Call, ...], call: Call
) -> None:
    assert all(ask(server, each)[0] == 204 for each in before)
    status, body = ask(server, call)
    assert status == 400
    assert isinstance(body, dict) and body.keys() == {"fault_message"} and body["fault_message"]


def test_a_snapshot_goes_on_in_a_fresh_one_and_nowhere_else(server: VmmServer) -> None:
    for call in (BOOT, MACHINE, DRIVE, START, PAUSE, SAVE):
        assert ask(server, call)[0] == 204
    fresh = PlayedFirecracker(NoGuest())
    server.vmm = fresh
    assert ask(server, LOAD)[0] == 204
    assert (fresh.state, list(fresh.drives)) == ("Paused", ["a"])
    assert ask(server, LOAD)[0] == 400


def test_one_that_cannot_load_ends(server: VmmServer) -> None:
    assert ask(server, LOAD)[0] == 400
    assert server.vmm.ended


def test_a_body_that_is_no_json_is_refused(server: VmmServer) -> None:
    assert server.decide("PUT", "/boot-source", b"{").status == 400
