"""The body of a machine's whole history."""

from datetime import datetime
from enum import StrEnum

import msgspec

from hawker.api.contract.body import Answer
from hawker.api.contract.machine import MachineEvent
from hawker.api.contract.run import Run
from hawker.api.route import Tag, Unary
from hawker.config import MachineConfig
from hawker.errors import Fault, NotFound, Unavailable


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


# The call for a machine's whole history, wherever it is kept.


class HistoryParams(msgspec.Struct, frozen=True, kw_only=True):
    """By the machine's whole id alone: its app may be gone."""

    machine_id: str


MACHINE_HISTORY = Unary(
    name="machine_history",
    method="GET",
    path="/hawker/v1/machines/{machine_id}/history",
    params=HistoryParams,
    response=MachineHistory,
    tag=Tag.MACHINES,
    summary="Show a machine's whole history, also from the archive",
    errors=(NotFound, Unavailable, Fault),
    guarded=False,  # whose machine it was is in the history
    timeout_s=90.0,
)

HISTORY_ROUTES = (MACHINE_HISTORY,)
