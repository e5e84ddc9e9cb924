"""All that is known of one machine, as rows that a person can read: what is written to an archive and read from it.

What the rows are made from and what they are shown as is the worker's business. Fields that end in `_json` hold JSON.
"""

from datetime import datetime
from typing import Annotated, TypeAlias

import msgspec

Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]


class MachineRow(msgspec.Struct, frozen=True, kw_only=True):
    """The machine as it was last. `region` and `node` say where; `version` is the ULID of its config; `private_ip` its
    IPv6 address; `details_json` is what its record has beside the other fields."""

    id: str
    app: str
    name: str
    node: str
    region: str
    state: str
    version: str
    image: str
    image_digest: str
    private_ip: str
    created_at: Moment
    updated_at: Moment
    config_json: str
    details_json: str


class VersionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the config."""

    version: str
    created_at: Moment
    image: str
    image_digest: str
    config_json: str


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened. `request_json` is its `request` as the API has it."""

    id: str
    at: Moment
    type: str
    status: str
    source: str
    request_json: str | None


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. `state` is the run's own word; `step` and `attempt`, from 1, are the last it was at; `error` is
    what a person reads about it; `parent` is the run that began it. Times are None for what has not come to pass."""

    id: str
    flow: str
    state: str
    accepted_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    step: str
    attempt: int
    error: str | None
    parent: str | None
    input_json: str | None
    result_json: str | None


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a step. `run` is the run's id; `number` counts within the run, from 0; `attempt` within the step,
    from 1."""

    run: str
    number: int
    step: str
    attempt: int
    outcome: str
    started_at: Moment
    ended_at: Moment
    error: str | None
    result_json: str | None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Everything oldest first."""

    machine: MachineRow
    versions: tuple[VersionRow, ...] = ()
    events: tuple[EventRow, ...] = ()
    runs: tuple[RunRow, ...] = ()
    steps: tuple[StepRow, ...] = ()
