"""What a pull or a push tells about itself while it works."""

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

from hawker.ids import Digest
from hawker.value_object import ValueObject


class PullStage(StrEnum):
    RESOLVING = "resolving"
    DOWNLOADING = "downloading"
    UNPACKING = "unpacking"  # bytes are packed ones
    BUILDING = "building"  # the block image; bytes are unpacked ones, of which it needs fewer
    UPLOADING = "uploading"  # to a registry
    DONE = "done"


class PullProgress(ValueObject, frozen=True):
    """Bytes are of `layer`, or of the whole image when there is none."""

    stage: PullStage
    layer: Digest | None = None
    done_bytes: int = 0
    """The bytes that are done, 0 to `total_bytes`."""
    total_bytes: int = 0
    """The bytes in all; 0 while that is not known."""


Report: TypeAlias = Callable[[PullProgress], None]


class PullSteps:
    """Thins out what is reported of one stage: bytes are told at first, when they have grown by a hundredth of `total`,
    and when they have reached it."""

    def __init__(self, report: Report, stage: PullStage, total: int) -> None:
        self._report = report
        self._stage = stage
        self._total = total
        self._told: int | None = None

    def at(self, done: int) -> None:
        """`done` bytes so far; more than the total counts as all."""
        done = min(done, self._total)
        last = self._told
        if last is None or done - last >= max(1, self._total // 100) or last < done == self._total:
            self._told = done
            self._report(PullProgress(self._stage, done_bytes=done, total_bytes=self._total))


def silent(progress: PullProgress) -> None:
    """Does nothing with the progress, for callers that do not watch."""
