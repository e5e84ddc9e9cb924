"""The initramfs of machines: the pilot as /init, the modules in /modules, their order, and nothing else.

One file per content of pilot and modules, made once and shared by all machines. Not compressed: a kernel spends more
time on that than a VMM on reading what it saves (docs/kernel.md has the figures).
"""

import hashlib
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from hawker.errors import CannotStart
from hawker.runtime.kernel.draft import draft, is_draft, put_file
from hawker.runtime.kernel.kernel_modules import Module
from hawker.runtime.kernel.tools import complaint, run_tool

_FORM = b"hawker initramfs 2\0"  # another one when the same content is to be packed in another way


def name_of(pilot: bytes, modules_digest: str) -> str:
    """By content: that of other content is another one."""
    content = _FORM + hashlib.sha256(pilot).digest() + modules_digest.encode()
    return f"{hashlib.sha256(content).hexdigest()[:32]}.cpio"


def digest_of(modules: Sequence[Module]) -> str:
    """The digest of modules' names and contents, in their order."""
    digest = hashlib.sha256()
    for module in modules:
        digest.update(module.name.encode() + b"\0" + hashlib.sha256(module.content).digest())
    return digest.hexdigest()


def build(path: Path, pilot: bytes, modules: Sequence[Module]) -> None:
    """Builders beside each other make the same file. Raises `OSError`, `MissingTool` without cpio, `CannotStart` when
    cpio fails."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with draft(path.parent) as work:
        made = work / path.name
        made.write_bytes(_archive(work / "root", pilot, modules))
        made.chmod(0o644)
        put_file(made, path)


def prune(directory: Path, used: Collection[str]) -> None:
    """Remove those with other names. A machine that is just being started with one is started again by its flow."""
    if directory.is_dir():
        for name in os.listdir(directory):
            if name not in used and not is_draft(name):
                with suppress(FileNotFoundError):
                    os.unlink(directory / name)


def _archive(root: Path, pilot: bytes, modules: Sequence[Module]) -> bytes:
    """The form that the kernel unpacks (its buffer-format.rst), all of root's and of no time, so that the same content
    gives the same bytes. Directories come before what is in them: the kernel makes none by itself."""
    (root / "modules").mkdir(parents=True)
    order = "".join(f"{module.name}.ko\n" for module in modules)
    files = {"init": pilot, "modules/order": order.encode()}
    files |= {f"modules/{module.name}.ko": module.content for module in modules}
    for name, content in files.items():
        (root / name).write_bytes(content)
    names = ["init", "modules", *list(files)[1:]]
    for name in names:
        (root / name).chmod(0o755 if name in ("init", "modules") else 0o644)
        os.utime(root / name, (0, 0))
    command = ["cpio", "--create", "--format=newc", "--reproducible", "--owner=+0:+0", "--quiet"]
    done = run_tool(command, given="\n".join(names).encode(), directory=root)
    if done.returncode != 0:
        raise CannotStart(f"cpio cannot pack the initramfs: {complaint(done)}")
    return done.stdout
