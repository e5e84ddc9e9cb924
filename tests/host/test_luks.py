"""Facts about cryptsetup's command lines, up to the edge: no test here has a kernel with dm-crypt below it."""

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from hawker.errors import Unavailable
from hawker.host.luks import KEY_BYTES, CommandResult, Luks, find_tool, run_tool

pytestmark = pytest.mark.anyio
KEY = bytes(range(KEY_BYTES))


class Edge:
    """Stands where cryptsetup would: notes what it is called with, and plays the devices."""

    def __init__(self, mapper: Path, status: int = 0, said: str = "") -> None:
        self.mapper = mapper
        self.finished = CommandResult(status, said)
        self.called: list[tuple[str, ...]] = []
        self.given: list[bytes] = []

    async def __call__(self, argv: Sequence[str], given: bytes) -> CommandResult:
        self.called.append(tuple(argv))
        self.given.append(given)
        if argv[1] == "open" and self.finished.status == 0:
            (self.mapper / argv[-1]).touch()
        if argv[1] == "close":
            (self.mapper / argv[-1]).unlink()
        return self.finished


@pytest.fixture
def mapper(tmp_path: Path) -> Path:
    (tmp_path / "control").touch()
    return tmp_path


def _luks(edge: Edge) -> Luks:
    return Luks(edge, lambda _: "/sbin/cryptsetup", edge.mapper)


async def test_a_file_is_formatted_as_luks2_with_the_key_from_a_pipe(mapper: Path) -> None:
    edge = Edge(mapper)
    await _luks(edge).format(Path("/v/data"), KEY)
    [argv] = edge.called
    assert argv[:5] == ("/sbin/cryptsetup", "luksFormat", "--batch-mode", "--type", "luks2")
    assert argv[-5:] == ("--key-file", "-", "--keyfile-size", "64", "/v/data")
    assert edge.given == [KEY]
    assert not any(KEY.hex() in part for part in argv)


async def test_a_file_is_opened_once_and_closed_once(mapper: Path) -> None:
    edge = Edge(mapper)
    luks = _luks(edge)
    for _ in range(2):
        assert await luks.open(Path("/v/data"), "hawker-vol_1", KEY) == mapper / "hawker-vol_1"
    assert luks.opened("hawker-") == ["hawker-vol_1"]
    for _ in range(2):
        await luks.close("hawker-vol_1")
    assert [argv[1:] for argv in edge.called] == [
        ("open", "--type", "luks2", "--key-file", "-", "--keyfile-size", "64", "/v/data", "hawker-vol_1"),
        ("close", "--deferred", "hawker-vol_1"),
    ]
    assert luks.opened("hawker-") == []


async def test_a_device_that_hands_on_discards_is_opened_so(mapper: Path) -> None:
    edge = Edge(mapper)
    luks = Luks(edge, lambda _: "/sbin/cryptsetup", edge.mapper, discards=True)
    await luks.open(Path("/v/data"), "hawker-vol_1", KEY)
    assert edge.called[0][1:5] == ("open", "--type", "luks2", "--allow-discards")


async def test_a_device_grows_with_its_key(mapper: Path) -> None:
    edge = Edge(mapper)
    await _luks(edge).grow("hawker-vol_1", KEY)
    assert edge.called[0][1:] == ("resize", "--key-file", "-", "--keyfile-size", "64", "hawker-vol_1")
    assert edge.given == [KEY]


async def test_words_of_cryptsetup_are_told(mapper: Path) -> None:
    with pytest.raises(Unavailable, match=r"cryptsetup open failed \(2\): No key available"):
        await _luks(Edge(mapper, 2, "No key available with this passphrase.")).open(Path("/v/data"), "v", KEY)


async def test_a_name_that_is_closed_meanwhile_is_no_error(mapper: Path) -> None:
    (mapper / "v").touch()
    await _luks(Edge(mapper, 4, "Device v is not active.")).close("v")


async def test_a_host_says_what_it_lacks(tmp_path: Path, mapper: Path) -> None:
    assert _luks(Edge(mapper)).missing() is None
    edge = Edge(tmp_path / "nowhere")
    assert "modprobe dm_crypt" in (_luks(edge).missing() or "")
    without = Luks(edge, lambda _: None, mapper)
    assert "apt-get install cryptsetup-bin" in (without.missing() or "")
    with pytest.raises(Unavailable, match="cryptsetup is not installed"):
        await without.format(Path("/v/data"), KEY)
    assert edge.called == []


def test_a_control_device_without_a_driver_is_no_device_mapper(mapper: Path) -> None:
    (mapper / "control").unlink()
    with socket.socket(socket.AF_UNIX) as nobody:  # cannot be opened either: ENXIO, where such a device says ENODEV
        nobody.bind(str(mapper / "control"))
        assert "has no driver" in (_luks(Edge(mapper)).missing() or "")


async def test_encryption_is_found_out_by_encrypting_a_file_once(mapper: Path) -> None:
    edge = Edge(mapper)
    luks = _luks(edge)
    assert [await luks.trial(mapper / "file", "trial") for _ in range(2)] == [None, None]
    assert [argv[1] for argv in edge.called] == ["luksFormat", "open", "close"]
    assert os.listdir(mapper) == ["control"]


async def test_encryption_that_fails_in_a_trial_is_missing_and_nothing_of_it_is_left(mapper: Path) -> None:
    edge = Edge(mapper, 1, "device-mapper: reload ioctl failed")
    luks = _luks(edge)
    assert "a trial of it failed: cryptsetup luksFormat failed" in (await luks.trial(mapper / "file", "trial") or "")
    assert await luks.trial(mapper / "file", "trial") is not None and len(edge.called) == 1
    assert os.listdir(mapper) == ["control"]


def test_a_control_device_that_may_not_be_opened_is_named(mapper: Path) -> None:
    (mapper / "control").unlink()
    (mapper / "control").mkdir()  # root may open every file; a directory fails, too
    assert "cannot be opened" in (_luks(Edge(mapper)).missing() or "")


async def test_a_tool_is_given_its_key_and_heard() -> None:
    code = "import sys; print(len(sys.stdin.buffer.read()), flush=True); sys.exit('why')"
    assert await run_tool([sys.executable, "-c", code], KEY) == CommandResult(1, "64\nwhy")


def test_tools_of_the_administrator_are_found_whatever_the_path() -> None:
    assert find_tool("mke2fs") is not None
    assert find_tool("no-such-tool-of-anybody") is None
