"""One flat, read-only block image from a directory: EROFS, with lz4 where that saves something, or ext4 for kernels
without EROFS.

The same tree gives the same file as far as the tools allow: fixed UUIDs and seeds, and no time but that of the files.
"""

import os
import shutil
import subprocess
from pathlib import Path

import anyio

from hawker.errors import CannotStart, Unavailable
from hawker.image.failure import no_room
from hawker.image.limits import MIB, BlockChoice

_UUID = "6861776b-6572-4000-8000-000000000000"
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_EXT4_FEATURES = "^has_journal,^resize_inode,^metadata_csum,^huge_file"
_INODE_BYTES = 256
_TOOL_S = 900.0


def host_choice(choice: BlockChoice) -> BlockChoice:
    """What AUTO means on this host. Raises `CannotStart` when the tool for it is missing."""
    if choice is BlockChoice.AUTO:
        choice = _best() if os.geteuid() == 0 else BlockChoice.NONE
    tool = {BlockChoice.EROFS: "mkfs.erofs", BlockChoice.EXT4: "mke2fs"}.get(choice)
    if tool and not _find(tool):
        package = "erofs-utils" if choice is BlockChoice.EROFS else "e2fsprogs"
        raise CannotStart(f"{tool} is missing: apt-get install {package}")
    return choice


def _best() -> BlockChoice:
    return BlockChoice.EROFS if kernel_has("erofs") else BlockChoice.EXT4


def kernel_has(filesystem: str) -> bool:
    """Built in, loaded, or there as a module that a mount would load."""
    if f"\t{filesystem}\n" in Path("/proc/filesystems").read_text():
        return True
    modules = Path("/lib/modules") / os.uname().release
    return any(
        f"/{filesystem}.ko" in (modules / listed).read_text()
        for listed in ("modules.dep", "modules.builtin")
        if (modules / listed).exists()
    )


def _find(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")


async def make_block(
    kind: BlockChoice,
    tree: Path,
    target: Path,
    *,
    newest_s: int,
    content_bytes: int,
    files: int,
    packs: bool = True,
) -> None:
    """Write `target` from the directory `tree`: `content_bytes` in `files` inodes, the newest time in it `newest_s`.
    `packs` is whether packing the content would save anything. Raises `NoRoom` for a full disk, `Unavailable` when the
    tool fails."""
    erofs = kind is BlockChoice.EROFS
    command = _erofs(tree, target, packs=packs) if erofs else _ext4(tree, target, content_bytes, files)
    tool = _find(command[0])
    assert tool is not None, "host_choice has found it"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(newest_s), "E2FSPROGS_FAKE_TIME": str(max(1, newest_s))}
    try:
        with anyio.fail_after(_TOOL_S):
            result = await anyio.run_process(
                [tool, *command[1:]], check=False, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
    except TimeoutError as error:
        raise Unavailable(f"{command[0]} did not end within {_TOOL_S:.0f} s") from error
    if result.returncode != 0:
        raise _failure(command[0], result.stdout.decode(errors="replace"), target)


def _erofs(tree: Path, target: Path, *, packs: bool) -> list[str]:
    return ["mkfs.erofs", "--quiet", *(["-zlz4"] if packs else []), "-U", _UUID, str(target), str(tree)]


def _ext4(tree: Path, target: Path, content_bytes: int, files: int) -> list[str]:
    """The size must be said beforehand: content in whole blocks, inodes, and a margin for directories."""
    size_kib = (content_bytes * 21 // 20 + files * (4096 + _INODE_BYTES) + 16 * MIB) // 1024
    options = ["-O", _EXT4_FEATURES, "-m", "0", "-N", str(files + 64), "-I", str(_INODE_BYTES), "-U", _UUID]
    seed = ["-E", f"hash_seed={_UUID},lazy_itable_init=1,root_owner=0:0"]
    return [
        "mke2fs",
        "-q",
        "-F",
        "-t",
        "ext4",
        "-b",
        "4096",
        *options,
        *seed,
        "-d",
        str(tree),
        str(target),
        f"{size_kib}k",
    ]


def _failure(tool: str, output: str, target: Path) -> Exception:
    free = os.statvfs(target.parent)
    if "No space left" in output or free.f_bavail * free.f_frsize < MIB:
        return no_room("making the block image", 0)
    last = output.strip().splitlines()[-1:] or ["no output"]
    return Unavailable(f"{tool} failed: {last[0][:300]}")
