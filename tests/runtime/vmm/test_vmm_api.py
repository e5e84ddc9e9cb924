"""The API of a VMM: errors in its own words, cut and cleaned."""

from pathlib import Path

import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.errors import CannotStart, Unavailable
from hawker.runtime.vmm.cloud_hypervisor import CLOUD_HYPERVISOR
from hawker.runtime.vmm.firecracker import FIRECRACKER
from hawker.runtime.vmm.vmm_api import ApiRequest, VmmApi, VmmProgram, VmmRefused, discard, readable
from tests.runtime.vmm.test_vmm_socket import answering, stay

pytestmark = pytest.mark.anyio
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
