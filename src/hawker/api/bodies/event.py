"""Bodies about what happened to a machine."""

from datetime import datetime

from hawker.api.bodies.body import Answer


class ExitEvent(Answer, frozen=True, kw_only=True):
    """How an instance ended; every `exit` event has one. `reason` says why a workload was never executed, `fault` what
    ended a machine that did not end by itself: its kernel panicked, say."""

    exit_code: int
    guest_exit_code: int
    guest_signal: int
    oom_killed: bool
    requested_stop: bool
    restarting: bool
    signal: int
    exited_at: datetime
    reason: str = ""
    fault: str = ""


class EventRequest(Answer, frozen=True, kw_only=True):
    """Of exits only: clients read both fields of whatever request there is."""

    exit_event: ExitEvent
    restart_count: int


class MachineEvent(Answer, frozen=True, kw_only=True):
    """`timestamp` is Unix milliseconds; `source` "user" or "flyd", the contract's word for the worker. `error` says why
    something failed, `version` which version it was; `resumed`: no new instance was started, the suspended one goes
    on."""

    id: str
    type: str
    status: str
    source: str
    timestamp: int
    request: EventRequest | None = None
    resumed: bool = False
    error: str = ""
    version: str = ""
