"""Calls that move a machine between states, and the one that waits for it."""

import msgspec

from hawker.api.bounds import LONGEST_WAIT_S, SignalName, StopSeconds, WaitSeconds
from hawker.api.contract.body import Ok
from hawker.api.contract.machine import (
    MachineParams,
    SignalRequest,
    StartAnswer,
    StopRequest,
    SuspendAnswer,
    WaitAnswer,
    WaitState,
)
from hawker.api.rate import Rate
from hawker.api.route import Tag, Unary
from hawker.errors import Conflict, DeadlineExceeded, LeaseHeld, NoRoom, NotFound, NotServed, WrongState
from hawker.permission import Action


class RestartQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How to end the running instance; `force_stop` skips the signal."""

    timeout: StopSeconds | None = None
    signal: SignalName | None = None
    force_stop: bool = False


class WaitQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Any of the states ends the wait. `version` (older: `instance_id`) binds it to one version; `from_event_id` looks
    only at what happened after that event. `timeout` is 1 to 60 seconds."""

    state: tuple[WaitState, ...] = ()
    timeout: WaitSeconds = LONGEST_WAIT_S
    version: str | None = None
    instance_id: str | None = None
    from_event_id: str | None = None


START_MACHINE = Unary(
    name="start_machine",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}/start",
    params=MachineParams,
    response=StartAnswer,
    tag=Tag.MACHINES,
    summary="Start a machine",
    errors=(NotFound, Conflict, LeaseHeld, WrongState, NoRoom),
    timeout_s=90.0,
)

STOP_MACHINE = Unary(
    name="stop_machine",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}/stop",
    params=MachineParams,
    body=StopRequest,
    response=Ok,
    tag=Tag.MACHINES,
    summary="Stop a machine",
    errors=(NotFound, Conflict, LeaseHeld, WrongState),
    body_optional=True,
)

SUSPEND_MACHINE = Unary(
    name="suspend_machine",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}/suspend",
    params=MachineParams,
    response=SuspendAnswer,
    tag=Tag.MACHINES,
    summary="Suspend a machine until it is started",
    errors=(NotFound, Conflict, LeaseHeld, WrongState, NotServed),
)

RESTART_MACHINE = Unary(
    name="restart_machine",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}/restart",
    params=MachineParams,
    query=RestartQuery,
    response=Ok,
    tag=Tag.MACHINES,
    summary="Stop a machine and start it again",
    errors=(NotFound, Conflict, LeaseHeld, WrongState, NoRoom),
    timeout_s=90.0,
)

SIGNAL_MACHINE = Unary(
    name="signal_machine",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}/signal",
    params=MachineParams,
    body=SignalRequest,
    response=Ok,
    tag=Tag.MACHINES,
    summary="Send a signal to a machine's processes",
    errors=(NotFound, WrongState),
    action=Action.CONTROL,
)

WAIT_MACHINE = Unary(
    name="wait_machine",
    method="GET",
    path="/v1/apps/{app_name}/machines/{machine_id}/wait",
    params=MachineParams,
    query=WaitQuery,
    response=WaitAnswer,
    tag=Tag.MACHINES,
    summary="Wait until a machine is in a state",
    errors=(NotFound, DeadlineExceeded, Conflict),
    timeout_s=75.0,
    rate=Rate.LOOK,
)

CORDON_MACHINE = Unary(
    name="cordon_machine",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}/cordon",
    params=MachineParams,
    response=Ok,
    tag=Tag.MACHINES,
    summary="Take a machine out of routing",
    errors=(NotFound, LeaseHeld, WrongState),
)

UNCORDON_MACHINE = Unary(
    name="uncordon_machine",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}/uncordon",
    params=MachineParams,
    response=Ok,
    tag=Tag.MACHINES,
    summary="Put a machine back into routing",
    errors=(NotFound, LeaseHeld, WrongState),
)

OPERATION_ROUTES = (
    START_MACHINE,
    STOP_MACHINE,
    SUSPEND_MACHINE,
    RESTART_MACHINE,
    SIGNAL_MACHINE,
    WAIT_MACHINE,
    CORDON_MACHINE,
    UNCORDON_MACHINE,
)
