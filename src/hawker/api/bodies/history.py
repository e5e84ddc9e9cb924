"""The body of a machine's whole history."""

from datetime import datetime
from enum import StrEnum

from hawker.api.bodies.body import Answer
from hawker.api.bodies.event import MachineEvent
from hawker.api.bodies.run import Run
from hawker.config import MachineConfig


class Kept(StrEnum):
    """Where a history was read from."""

    NODE = "node"
    ARCHIVE = "archive"


class HistoryVersion(Answer, frozen=True, kw_only=True):
    """A version of the config and when it came to be."""

    version: str
    created_at: datetime
    image: str
    image_digest: str
    user_config: MachineConfig


class MachineHistory(Answer, frozen=True, kw_only=True):
    """All that is known of a machine, oldest first. `node` is where it was; `updated_at` of a destroyed machine is when
    it was destroyed. A run's steps are all their attempts."""

    id: str
    app: str
    name: str
    node: str
    region: str
    state: str
    image: str
    image_digest: str
    version: str
    private_ip: str
    created_at: datetime
    updated_at: datetime
    kept: Kept
    versions: tuple[HistoryVersion, ...]
    events: tuple[MachineEvent, ...]
    runs: tuple[Run, ...]
