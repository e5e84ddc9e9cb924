"""The block images that are here: one file per image digest, made once, named when it is whole."""

import os
from collections.abc import Sequence
from pathlib import Path

from hawker.ids import Digest
from hawker.image.blobs import remove_file
from hawker.image.block import host_choice
from hawker.image.build import Turn, at_once, build_block
from hawker.image.digest import hex_of
from hawker.image.limits import BlockChoice, ImageLimits
from hawker.image.progress import Report, silent
from hawker.image.staging import Staging
from hawker.image.unpack import LayerBlob

_TYPES = (BlockChoice.EROFS.value, BlockChoice.EXT4.value)


class Blocks:
    def __init__(self, root: Path, choice: BlockChoice, staging: Staging, limits: ImageLimits) -> None:
        self._folder = root / "rootfs"
        self._choice = choice
        self._staging = staging
        self._limits = limits

    def open(self) -> None:
        """Settle the filesystem and drop what a crash left half made. Raises `CannotStart` when a tool is missing."""
        self._choice = host_choice(self._choice)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for stale in self._folder.glob("*.tmp"):
            remove_file(stale)

    @property
    def wanted(self) -> bool:
        """Whether this node makes block images at all."""
        return self._choice is not BlockChoice.NONE

    def find(self, digest: Digest) -> Path | None:
        """Made in whichever filesystem was right at the time."""
        whole = f"{self._folder}/{hex_of(digest)}"
        found = next((kind for kind in _TYPES if os.access(f"{whole}.{kind}", os.F_OK)), None)
        return None if found is None else Path(f"{whole}.{found}")

    async def make(
        self, digest: Digest, layers: Sequence[LayerBlob], report: Report = silent, turn: Turn = at_once
    ) -> Path:
        """Raises what `build_block` raises."""
        target = self._folder / f"{hex_of(digest)}.{self._choice.value}"
        await build_block(layers, target, self._choice, self._staging, self._limits, report, turn)
        return target

    def all(self) -> list[tuple[Digest, Path]]:
        return [(Digest(f"sha256:{file.stem}"), file) for file in self._folder.iterdir() if file.suffix[1:] in _TYPES]

    def disk_bytes(self) -> int:
        return sum(file.stat().st_blocks * 512 for _, file in self.all())
