"""The initramfs of machines: the pilot as /init, the modules in /modules, their order, and nothing else.

One file per content of pilot and modules, made once and shared by all machines. Not compressed: a kernel spends more
time on that than a VMM on reading what it saves (docs/kernel.md has the figures).
"""

import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from hawker.runtime.kernel.cpio import Entry, archive
from hawker.runtime.kernel.draft import draft, is_draft, put_file
from hawker.runtime.kernel.modules import Module

_FORM = b"hawker initramfs 1\0"  # another one when the same content is to be packed in another way


def name_of(pilot: bytes, modules_digest: str) -> str:
    """By content: that of other content is another one."""
    content = _FORM + hashlib.sha256(pilot).digest() + modules_digest.encode()
    return f"{hashlib.sha256(content).hexdigest()[:32]}.cpio"


def digest_of(modules: Sequence[Module]) -> str:
    """Of their contents and their order."""
    digest = hashlib.sha256()
    for module in modules:
        digest.update(module.name.encode() + b"\0" + hashlib.sha256(module.content).digest())
    return digest.hexdigest()


def build(path: Path, pilot: bytes, modules: Sequence[Module]) -> None:
    """Builders beside each other make the same file. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with draft(path.parent) as work:
        made = work / path.name
        made.write_bytes(archive(_entries(pilot, modules)))
        made.chmod(0o644)
        put_file(made, path)


def prune(directory: Path, used: Collection[str]) -> None:
    """Remove those with other names. A machine that is just being started with one is started again by its flow."""
    if directory.is_dir():
        for name in os.listdir(directory):
            if name not in used and not is_draft(name):
                with suppress(FileNotFoundError):
                    os.unlink(directory / name)


def _entries(pilot: bytes, modules: Sequence[Module]) -> Iterator[Entry]:
    yield Entry("init", pilot, 0o755)
    files = [(f"{module.name}.ko", module.content) for module in modules]
    yield Entry("modules/order", "".join(f"{name}\n" for name, _ in files).encode())
    for name, content in files:
        yield Entry(f"modules/{name}", content)
