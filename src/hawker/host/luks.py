"""LUKS2 over a volume's file, through cryptsetup and the kernel's dm-crypt. Only the command lines and what they answer
are here; where keys come from is not.

A key is random and as long as the cipher's own, so deriving from it need not be slow: guessing it is hopeless anyway.
It goes to cryptsetup through a pipe, never through a command line or a file. What is open is `/dev/mapper/NAME`.
"""

import errno
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio

from hawker.errors import Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.value_object import ValueObject

KEY_BYTES = 64
HEADER_BYTES = 16 << 20  # of LUKS2: what a device is smaller by than its file
_CRYPTSETUP = "cryptsetup"
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_COMMAND_S = 120.0
_NO_DRIVER = frozenset({errno.ENOENT, errno.ENODEV, errno.ENXIO})
_NOT_A_DEVICE = 4  # cryptsetup(8), "Return codes": also what `close` says of a name that is not open
_CIPHER = ("--cipher", "aes-xts-plain64", "--key-size", "512")
_DERIVE = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
_KEY = ("--key-file", "-", "--keyfile-size", str(KEY_BYTES))


class CommandResult(ValueObject, frozen=True):
    """The status and the output of a command."""

    status: int
    """The exit status: 0 is success; below 0 the signal that ended the command."""
    said: str
    """The last 300 characters of what the command wrote."""


Run: TypeAlias = Callable[[Sequence[str], bytes], Awaitable[CommandResult]]  # a command, and what it is given to read
Find: TypeAlias = Callable[[str], str | None]


def find_tool(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")


async def run_tool(argv: Sequence[str], given: bytes) -> CommandResult:
    """Run cryptsetup with `given` as its input. Raises `Unavailable` when it does not end in time."""
    try:
        with anyio.fail_after(_COMMAND_S):
            done = await anyio.run_process(
                argv, input=given, check=False, stderr=subprocess.STDOUT, start_new_session=True
            )
    except TimeoutError as error:
        raise Unavailable(f"{argv[1]} of cryptsetup did not end within {_COMMAND_S:g} s") from error
    return CommandResult(done.returncode, done.stdout.decode(errors="replace").strip()[-300:])


class Luks:
    """Encrypted files and the devices that they become. Every call may be repeated. Raises `Unavailable` with what
    cryptsetup says. With `discards` a device hands on what its file system drops: its file shows then which blocks are
    in use."""

    def __init__(
        self,
        run: Run = run_tool,
        find: Find = find_tool,
        mapper: Path = Path("/dev/mapper"),
        *,
        discards: bool = False,
    ) -> None:
        self._run = run
        self._find = find
        self._mapper = mapper
        self._discards = ("--allow-discards",) if discards else ()
        self._tried: str | None = None

    def missing(self) -> str | None:
        """The reason why this host cannot encrypt, and how to mend that; None when it lacks nothing."""
        if self._find(_CRYPTSETUP) is None:
            return "cryptsetup is not installed: apt-get install cryptsetup-bin"
        return self._lacks_mapper()

    def _lacks_mapper(self) -> str | None:
        """cryptsetup makes the control device itself, also where the kernel has no driver for it: only opening the
        device tells, and loads a driver that is a module."""
        control = self._mapper / "control"
        try:
            os.close(os.open(control, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            if error.errno in _NO_DRIVER:
                why = "is not there" if error.errno == errno.ENOENT else "has no driver"
                return f"the kernel has no device-mapper ({control} {why}): modprobe dm_crypt"
            return f"{control} cannot be opened ({os.strerror(error.errno or 0)}): this node needs device-mapper"
        return None

    async def trial(self, file: Path, name: str) -> str | None:
        """The reason as of `missing`, found also by encrypting `file`, which is made for it and removed: a kernel with
        device-mapper may have no dm-crypt, or not this cipher. The trial is made once, and its result holds until the
        process ends."""
        lacks = self.missing()
        if lacks is None and self._tried is None:
            self._tried = await self._try(file, name)
        return lacks or self._tried or None

    async def _try(self, file: Path, name: str) -> str:
        """What went wrong, empty for nothing."""
        key = bytes(KEY_BYTES)  # of an empty file
        try:
            await in_thread(Pool.DISKS, _make_empty, file)
            await self.format(file, key)
            await self.open(file, name, key)
        except (Unavailable, OSError) as error:
            return f"a trial of it failed: {error}; once that is mended, start the node again"
        finally:
            with anyio.CancelScope(shield=True), suppress(Unavailable):
                await self.close(name)
            with anyio.CancelScope(shield=True):
                await in_thread(Pool.DISKS, partial(file.unlink, missing_ok=True))
        return ""

    async def format(self, file: Path, key: bytes) -> None:
        """Make an empty encrypted volume of a file. All content of the file is lost."""
        await self._call("luksFormat", "--batch-mode", "--type", "luks2", *_CIPHER, *_DERIVE, *_KEY, str(file), key=key)

    async def open(self, file: Path, name: str, key: bytes) -> Path:
        """Open the encrypted volume in `file`. Returns its device, which takes a loop device that goes away with it."""
        if not self.is_open(name):
            await self._call("open", "--type", "luks2", *self._discards, *_KEY, str(file), name, key=key)
        return self.device(name)

    async def close(self, name: str) -> None:
        """Close the device, at once, or when its last user is done with it: a mount that was detached may use it still.
        No error when it is not open."""
        if self.is_open(name):
            await self._call("close", "--deferred", name, key=b"", fine=(0, _NOT_A_DEVICE))

    async def grow(self, name: str, key: bytes) -> None:
        """Let an open device be as large as its file, once the loop device below it is."""
        await self._call("resize", *_KEY, name, key=key)

    def is_open(self, name: str) -> bool:
        return self.device(name).exists()

    def device(self, name: str) -> Path:
        return self._mapper / name

    def opened(self, prefix: str) -> list[str]:
        """The names of open devices that begin with `prefix`."""
        return sorted(path.name for path in self._mapper.glob(f"{prefix}*"))

    async def _call(self, *arguments: str, key: bytes, fine: tuple[int, ...] = (0,)) -> None:
        lacks = self.missing()
        if lacks is not None:
            raise Unavailable(f"an encrypted volume cannot be used: {lacks}")
        done = await self._run((self._find(_CRYPTSETUP) or _CRYPTSETUP, *arguments), key)
        if done.status not in fine:
            raise Unavailable(f"cryptsetup {arguments[0]} failed ({done.status}): {done.said or 'it said nothing'}")


def _make_empty(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with file.open("wb") as made:
        made.truncate(2 * HEADER_BYTES)
