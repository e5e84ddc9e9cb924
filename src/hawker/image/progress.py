"""What a pull tells about itself while it works."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from hawker.ids import Digest


class PullStage(StrEnum):
    RESOLVING = "resolving"
    DOWNLOADING = "downloading"
    UNPACKING = "unpacking"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class PullProgress:
    """Bytes are of `layer`, or of the whole image when there is none."""

    stage: PullStage
    layer: Digest | None = None
    done_bytes: int = 0
    total_bytes: int = 0


Report: TypeAlias = Callable[[PullProgress], None]


def silent(progress: PullProgress) -> None:
    """For callers that do not watch."""
