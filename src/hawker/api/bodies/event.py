"""Bodies about what happened to a machine."""

from datetime import datetime

from hawker.api.bodies.body import Answer


class ExitEvent(Answer, frozen=True, kw_only=True):
    """How an instance ended; every `exit` event has one. `reason` says why a workload was never executed."""

    exit_code: int
    guest_exit_code: int
    guest_signal: int
    oom_killed: bool
    requested_stop: bool
    restarting: bool
    signal: int
    exited_at: datetime
    reason: str = ""


class EventRequest(Answer, frozen=True, kw_only=True):
    exit_event: ExitEvent | None = None
    restart_count: int = 0
    error: str = ""
    version: str = ""


class MachineEvent(Answer, frozen=True, kw_only=True):
    """`timestamp` is Unix milliseconds; `source` "user" or "flyd", the contract's word for the worker."""

    id: str
    type: str
    status: str
    source: str
    timestamp: int
    request: EventRequest | None = None
