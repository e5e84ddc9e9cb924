"""A machine's history: from what the store has to rows, the same for an archive and for an answer, and from rows to the
answer. So what is live and what is archived are shown alike.
"""

from typing import Any, TypeVar

import msgspec

from hawker.api.contract.body import instant
from hawker.api.contract.machine import EventRequest, ExitEvent, MachineEvent
from hawker.api.contract.run import HistoryVersion, Kept, MachineHistory, RunState, RunStep
from hawker.api.contract.run import Run as RunBody
from hawker.archive.failure import ArchiveDamaged
from hawker.archive.history_file import EventRow, History, MachineRow, RunRow, StepRow, VersionRow
from hawker.config import MachineConfig, with_guest
from hawker.fsm import journal
from hawker.fsm.contract import Resource
from hawker.fsm.run import Run, StepRecord
from hawker.fsm.view import step_view_of, view_of
from hawker.ids import MachineId
from hawker.record import views
from hawker.record.machine import (
    ARCHIVED,
    DESTROYED,
    EVENTS,
    MACHINES,
    VERSIONS,
    EventRecord,
    MachineRecord,
    VersionRecord,
)
from hawker.record.node import NODE
from hawker.store.contract import Reader

T = TypeVar("T")


class _Detail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `request_json` of an event's row holds."""

    exit_event: ExitEvent | None = None
    restart_count: int = 0
    error: str = ""
    version: str = ""


_SHOWN_ELSEWHERE = frozenset(
    {"id", "app", "name", "region", "state", "version", "config", "image", "created_at", "updated_at"}
)
_NOT_KEPT = frozenset({"lease", "previous", "awaited", "last_event"})  # a lease's nonce is a secret of its owner's
_RUN_STATES = {state.value: state for state in RunState} | {"delayed": RunState.QUEUED}


def live_history(reader: Reader, machine_id: MachineId) -> History | None:
    """Of any machine that the store has, destroyed ones included."""
    record = reader.get(MACHINES, machine_id) or reader.get(DESTROYED, machine_id)
    return None if record is None else _history(reader, record)


def destroyed_history(reader: Reader, machine_id: MachineId) -> History | None:
    record = reader.get(DESTROYED, machine_id)
    return None if record is None else _history(reader, record)


def histories_waiting(reader: Reader) -> int:
    """How many of destroyed machines are not in the archive."""
    return reader.count(DESTROYED) - reader.count(ARCHIVED)


def _history(reader: Reader, record: MachineRecord) -> History:
    node = reader.get(NODE, "self")
    runs = list(journal.newest(reader, Resource(kind="machine", id=record.id)))[::-1]
    return History(
        machine=_machine(record, node.id if node else ""),
        versions=tuple(_version(version) for _, version in reader.scan(VERSIONS, f"{record.id}/")),
        events=tuple(_event(event) for _, event in reader.scan(EVENTS, f"{record.id}/")),
        runs=tuple(map(_run, runs)),
        steps=tuple(
            _step(run, number, step) for run in runs for number, step in enumerate(journal.history(reader, run.id))
        ),
    )


def _machine(record: MachineRecord, node: str) -> MachineRow:
    fields = msgspec.to_builtins(record)
    details = {name: value for name, value in fields.items() if name not in _SHOWN_ELSEWHERE | _NOT_KEPT}
    return MachineRow(
        id=record.id,
        app=record.app,
        name=record.name,
        node=node,
        region=record.region,
        state=record.state,
        version=record.version,
        image=record.image.reference,
        image_digest=record.image.digest,
        private_ip=record.network.private_ip,
        created_at=instant(record.created_at),
        updated_at=instant(record.updated_at),
        config_json=_json(record.config),
        details_json=_json(details),
    )


def _version(record: VersionRecord) -> VersionRow:
    return VersionRow(
        version=record.version,
        created_at=instant(record.created_at),
        image=record.image.reference,
        image_digest=record.image.digest,
        config_json=_json(record.config),
    )


def _event(record: EventRecord) -> EventRow:
    shown = views.event(record)
    detail = _Detail(error=shown.error, version=shown.version)
    if shown.request is not None:
        exit, count = shown.request.exit_event, shown.request.restart_count
        detail = msgspec.structs.replace(detail, exit_event=exit, restart_count=count)
    return EventRow(
        id=record.id,
        at=instant(record.at),
        type=record.type,
        status=record.status,
        source=record.source,
        request_json=None if record.detail is None else _json(detail),
    )


def _run(run: Run) -> RunRow:
    view = view_of(run)
    return RunRow(
        id=view.run_id,
        flow=view.flow,
        state=view.state,
        accepted_at=instant(view.accepted_at),
        started_at=None if view.started_at is None else instant(view.started_at),
        ended_at=None if view.ended_at is None else instant(view.ended_at),
        step=view.step,
        attempt=view.attempt,
        error=view.error,
        parent=view.parent,
        input_json=None if view.input is None else _json(view.input),
        result_json=None if view.result is None else _json(view.result),
    )


def _step(run: Run, number: int, record: StepRecord) -> StepRow:
    view = step_view_of(record)
    return StepRow(
        run=run.id,
        number=number,
        step=view.step,
        attempt=view.attempt,
        outcome=view.outcome,
        started_at=instant(view.started_at),
        ended_at=instant(view.ended_at),
        error=view.error,
        result_json=None if view.result is None else _json(view.result),
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def answer(history: History, kept: Kept) -> MachineHistory:
    """Raises `ArchiveDamaged` for rows whose JSON is not what it should be."""
    machine = history.machine
    return MachineHistory(
        id=machine.id,
        app=machine.app,
        name=machine.name,
        node=machine.node,
        region=machine.region,
        state=machine.state,
        image=machine.image,
        image_digest=machine.image_digest,
        version=machine.version,
        private_ip=machine.private_ip,
        created_at=machine.created_at,
        updated_at=machine.updated_at,
        kept=kept,
        versions=tuple(map(_shown_version, history.versions)),
        events=tuple(map(_shown_event, history.events)),
        runs=tuple(_shown_runs(history)),
    )


def _shown_version(row: VersionRow) -> HistoryVersion:
    return HistoryVersion(
        version=row.version,
        created_at=row.created_at,
        image=row.image,
        image_digest=row.image_digest,
        user_config=with_guest(_decoded(row.config_json, MachineConfig)),
    )


def _shown_event(row: EventRow) -> MachineEvent:
    detail = _Detail() if row.request_json is None else _decoded(row.request_json, _Detail)
    exit, count = detail.exit_event, detail.restart_count
    return MachineEvent(
        id=row.id,
        type=row.type,
        status=row.status,
        source=row.source,
        timestamp=round(row.at.timestamp() * 1000),
        request=None if exit is None else EventRequest(exit_event=exit, restart_count=count),
        error=detail.error,
        version=detail.version,
    )


def _shown_runs(history: History) -> list[RunBody]:
    steps: dict[str, list[RunStep]] = {}
    for step in history.steps:
        steps.setdefault(step.run, []).append(_shown_step(step))
    return [_shown_run(run, history.machine.id, steps.get(run.id, [])) for run in history.runs]


def _shown_run(row: RunRow, machine_id: str, steps: list[RunStep]) -> RunBody:
    return RunBody(
        id=row.id,
        flow=row.flow,
        resource_kind="machine",
        resource_id=machine_id,
        state=_RUN_STATES.get(row.state, RunState.ACTIVE),
        created_at=row.accepted_at,
        ended_at=row.ended_at,
        step=row.step,
        attempt=row.attempt,
        error=row.error,
        parent_id=row.parent,
        steps=tuple(steps),
    )


def _shown_step(row: StepRow) -> RunStep:
    """One row per attempt."""
    return RunStep(
        name=row.step,
        state=row.outcome,
        attempts=row.attempt,
        started_at=row.started_at,
        ended_at=row.ended_at,
        error=row.error,
        result=row.result_json,
    )


def _decoded(text: str, kind: type[T]) -> T:
    try:
        found: Any = msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ArchiveDamaged(f"the history has a {kind.__name__} that cannot be read: {error}") from error
    assert isinstance(found, kind)
    return found
