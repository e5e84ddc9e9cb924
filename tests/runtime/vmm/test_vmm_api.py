"""The API of a VMM: errors in its own words, cut and cleaned."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.errors import CannotStart, Unavailable
from hawker.runtime.vmm.cloud_hypervisor import CLOUD_HYPERVISOR
from hawker.runtime.vmm.firecracker import FIRECRACKER
from hawker.runtime.vmm.vmm_api import (
    ANSWER_MAX,
    ApiRequest,
    VmmAbsent,
    VmmApi,
    VmmHungUp,
    VmmProgram,
    VmmRefused,
    discard,
    exchange,
    readable,
)

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


@contextmanager
def answering(path: Path, said: bytes, then: Callable[[socket.socket], None] = lambda _: None) -> Iterator[list[bytes]]:
    """Takes one request and says this, byte for byte; `then` before it hangs up."""
    heard: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        joined, _ = listener.accept()
        with joined:
            heard.append(joined.recv(65536))
            try:
                joined.sendall(said)
                then(joined)
            except OSError:
                heard.append(b"the client left")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield heard
        thread.join()


def stay(joined: socket.socket) -> None:
    """Until the client leaves."""
    joined.recv(1)


async def test_an_answer_has_a_status_and_a_body(tmp_path: Path) -> None:
    with answering(tmp_path / "s", OK, stay) as heard:
        answer = await exchange(tmp_path / "s", "PUT", "/a", b"{}", timeout_s=60)
    assert (answer.status, answer.body) == (200, b"hi")
    head, _, body = heard[0].partition(b"\r\n\r\n")
    assert head.startswith(b"PUT /a HTTP/1.1\r\nHost: localhost\r\n") and body == b"{}"
    assert b"Content-Length: 2" in head and b"Content-Type: application/json" in head


async def test_a_request_without_a_body_does_not_speak_of_one(tmp_path: Path) -> None:
    with answering(tmp_path / "s", b"HTTP/1.1 204 \r\nServer: x\r\nConnection: keep-alive\r\n\r\n", stay) as heard:
        answer = await exchange(tmp_path / "s", "PUT", "/b", None, timeout_s=60)
    assert (answer.status, answer.body) == (204, b"")
    assert b"Content" not in heard[0]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha",
    ],
)
async def test_half_an_answer_is_none(tmp_path: Path, said: bytes) -> None:
    with answering(tmp_path / "s", said), pytest.raises(VmmHungUp):
        await exchange(tmp_path / "s", "GET", "/", None, timeout_s=60)


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-nothing\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"\0" * 64,
    ],
)
async def test_an_answer_that_is_no_http_is_an_error(tmp_path: Path, said: bytes) -> None:
    with answering(tmp_path / "s", said, stay), pytest.raises(Unavailable, match="no HTTP"):
        await exchange(tmp_path / "s", "GET", "/", None, timeout_s=60)


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n" + b"x" * (ANSWER_MAX + 1),
        b"HTTP/1.1 200 OK\r\n" + b"X-Y: z\r\n" * (ANSWER_MAX // 8 + 1),
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * (ANSWER_MAX + 1),
    ],
)
async def test_an_answer_without_end_is_cut(tmp_path: Path, said: bytes) -> None:
    with answering(tmp_path / "s", said), pytest.raises(Unavailable):
        await exchange(tmp_path / "s", "GET", "/", None, timeout_s=60)


async def test_silence_has_an_end(tmp_path: Path) -> None:
    with answering(tmp_path / "s", b"HTTP/1.1 ", stay), pytest.raises(Unavailable, match=r"no answer .* within 0.05 s"):
        await exchange(tmp_path / "s", "GET", "/", None, timeout_s=0.05)


async def test_nobody_there_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(VmmAbsent):
        await exchange(tmp_path / "s", "GET", "/", None, timeout_s=60)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
    with pytest.raises(VmmAbsent, match="refused"):
        await exchange(tmp_path / "s", "GET", "/", None, timeout_s=60)


async def test_a_link_or_a_file_in_its_place_is_not_spoken_to(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "other"))
        listener.listen()
        (tmp_path / "link").symlink_to(tmp_path / "other")
        (tmp_path / "file").touch()
        for name in ("link", "file"):
            with pytest.raises(Unavailable, match="tampered"):
                await exchange(tmp_path / name, "GET", "/", None, timeout_s=60)


async def test_its_path_may_be_longer_than_an_address(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    with answering(tmp_path / "s", OK, stay):
        (tmp_path / "s").rename(deep / "s")
        assert (await exchange(deep / "s", "GET", "/", None, timeout_s=60)).status == 200


LOOK = ApiRequest("GET", "/look")


class Size(msgspec.Struct, frozen=True, kw_only=True):
    size: int


def api(path: Path) -> VmmApi:
    return VmmApi("Played", path / "s", lambda body: body.decode())


def reply(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


async def test_an_answer_is_a_value(tmp_path: Path) -> None:
    with answering(tmp_path / "s", reply(200, b'{"size":7,"more":1}'), stay):
        assert await api(tmp_path).ask(LOOK, Size) == Size(size=7)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"size":"7"}', b'{"size"' * 1000, b"[" * 100_000])
async def test_an_answer_that_is_no_such_value_is_an_error(tmp_path: Path, body: bytes) -> None:
    with answering(tmp_path / "s", reply(200, body), stay), pytest.raises(Unavailable, match="cannot be read"):
        await api(tmp_path).ask(LOOK, Size)


async def test_a_refusal_has_its_words(tmp_path: Path) -> None:
    with answering(tmp_path / "s", reply(400, b"no\nsuch \x1b[31mthing"), stay), pytest.raises(VmmRefused) as caught:
        await api(tmp_path).send(LOOK)
    assert str(caught.value) == "Played refuses GET /look: no such [31mthing"
    assert caught.value.said == "no such [31mthing"


async def test_a_refusal_without_words_has_its_status(tmp_path: Path) -> None:
    with answering(tmp_path / "s", reply(503, b""), stay), pytest.raises(VmmRefused, match="status 503"):
        await api(tmp_path).send(LOOK)


async def test_a_request_that_may_fail_fails_quietly(tmp_path: Path) -> None:
    await api(tmp_path).try_send(LOOK)


async def test_one_that_has_not_appeared_yet_is_waited_for(tmp_path: Path) -> None:
    looks = []

    def alive() -> bool:
        looks.append(True)
        return len(looks) < 3

    with pytest.raises(Unavailable, match="Played ended before it listened"):
        await api(tmp_path).appeared(LOOK, alive, SystemClock())
    with answering(tmp_path / "s", reply(200, b"{}"), stay) as heard:
        await api(tmp_path).appeared(LOOK, alive, SystemClock())
    assert heard[0].startswith(b"GET /look ")


def test_a_readable_answer_is_one_short_line() -> None:
    assert readable(" a\r\n\tb\0c\u202e ") == "a b c"
    assert len(readable("x" * 10_000)) == 400


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def install(path: Path, name: str, script: str) -> None:
    (path / name).write_text(f"#!/bin/sh\n{script}\n")
    (path / name).chmod(0o755)


async def test_one_that_is_missing_says_what_to_install(path: Path) -> None:
    with pytest.raises(
        CannotStart, match=r"firecracker is missing: install Firecracker 1\.16, see docs/firecracker\.md"
    ):
        await FIRECRACKER.check(lambda: "")


@pytest.mark.parametrize(
    ("program", "said", "why"),
    [
        (FIRECRACKER, "Firecracker v1.16.1", ""),
        (FIRECRACKER, "Firecracker v1.14.0-dev", ""),
        (FIRECRACKER, "Firecracker v2.0.0", ""),
        (FIRECRACKER, "Firecracker v1.9.1", r"Firecracker 1\.9 is too old: install 1\.16, or 1\.14 at least"),
        (FIRECRACKER, "usage: hello", "firecracker is no Firecracker: it says 'usage: hello'"),
        (CLOUD_HYPERVISOR, "cloud-hypervisor v53.0", ""),
        (CLOUD_HYPERVISOR, "cloud-hypervisor v50.2", r"Cloud Hypervisor 50\.2 is too old"),
    ],
)
async def test_its_version_has_all_that_is_asked_of_it(path: Path, program: VmmProgram, said: str, why: str) -> None:
    install(path, program.command, f"echo '{said}'; echo more")
    assert await program.version() == said
    if not why:
        await program.check(lambda: "")
        return
    with pytest.raises(CannotStart, match=why):
        await program.check(lambda: "")


async def test_one_that_does_not_run_says_so(path: Path) -> None:
    install(path, "firecracker", "exit 3")
    with pytest.raises(CannotStart, match="does not tell its version"):
        await FIRECRACKER.check(lambda: "")


async def test_without_kvm_another_driver_is_named(path: Path) -> None:
    install(path, "firecracker", "echo Firecracker v1.16.1")
    with pytest.raises(CannotStart, match="needs KVM: no /dev/kvm; choose --driver qemu"):
        await FIRECRACKER.check(lambda: "no /dev/kvm")


INSIDE = "/cell/vmm/snapshot"


def test_its_files_are_taken_away_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    for name in ("state", "memory", "other"):
        (tmp_path / "snapshot" / name).write_bytes(b"x")
    discard(tmp_path, INSIDE, ("state", "memory", "absent"))
    assert [file.name for file in (tmp_path / "snapshot").iterdir()] == ["other"]


def test_nothing_there_is_no_error(tmp_path: Path) -> None:
    discard(tmp_path, INSIDE, ("state",))
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "state").touch()
    (tmp_path / "snapshot").symlink_to(other)
    discard(tmp_path, INSIDE, ("state",))
    assert (other / "state").exists()


def test_a_link_in_the_place_of_a_file_is_taken_away_itself(tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "mine").touch()
    (tmp_path / "snapshot" / "state").symlink_to(tmp_path / "mine")
    discard(tmp_path, INSIDE, ("state",))
    assert (tmp_path / "mine").exists() and not (tmp_path / "snapshot" / "state").is_symlink()
