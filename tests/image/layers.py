"""Layers for tests as blobs on disk, and unpacking them the way a build does."""

from collections.abc import Iterable
from pathlib import Path

from hawker.ids import Digest
from hawker.image.limits import ImageLimits
from hawker.image.manifest import Compression
from hawker.image.tree import write_tree
from hawker.image.unpack import LayerBlob, Unpacker
from tests.fixtures.parts import sha256


def blobs(folder: Path, *archives: bytes) -> list[LayerBlob]:
    """Plain layers."""
    folder.mkdir(exist_ok=True)
    found = []
    for number, archive in enumerate(archives):
        path = folder / str(number)
        path.write_bytes(archive)
        found.append(LayerBlob(Digest(sha256(archive)), path, Compression.NONE))
    return found


def unpack(folder: Path, archives: Iterable[bytes], limits: ImageLimits | None = None) -> Path:
    """Gives the root filesystem's directory."""
    pool = folder / "pool"
    pool.mkdir()
    layers = blobs(folder / "blobs", *archives)
    tree = Unpacker(pool, 1 << 40, limits or ImageLimits(), lambda: None).unpack(layers)
    write_tree(tree, pool, folder / "root", lambda: None)
    return folder / "root"
