"""Calls that move a machine between states, the one that waits for it, those about its memory while it runs, and
leases: a client's exclusive right to make such calls. Memory is in MiB, which the Machines API calls MB.

The answer about a lease is the envelope that flyctl reads, and has the official document's flat fields too.
"""

import msgspec

from hawker.api.bounds import LONGEST_WAIT_S, Seconds, SignalName, StopSeconds, WaitSeconds
from hawker.api.contract.body import Answer, Ok, Request
from hawker.api.contract.machine import (
    MachineParams,
    SignalRequest,
    StartAnswer,
    StopRequest,
    SuspendAnswer,
    WaitAnswer,
    WaitState,
)
from hawker.api.route import Rate, Tag, Unary
from hawker.errors import (
    AlreadyExists,
    Conflict,
    Damaged,
    DeadlineExceeded,
    LeaseHeld,
    NoRoom,
    NotFound,
    NotServed,
    WrongState,
)
from hawker.permission import Action


class LeaseRequest(Request, frozen=True, kw_only=True):
    """`ttl` in seconds; also accepted as a query parameter, without a body. Others' metadata, signals, terminals and
    copies of files are taken while the lease is held, since clients show no nonce with them."""

    ttl: int | None = None
    description: str | None = None
    """A text for people who find the machine leased; absent: the lease has none."""


class LeaseData(Answer, frozen=True, kw_only=True):
    """`expires_at` is Unix seconds; `version` the machine's current version."""

    nonce: str
    """The lease's secret: a call that shows it may change the machine."""
    expires_at: int
    owner: str
    """The name of the token that took the lease."""
    description: str
    """The text that the owner gave for people; may be empty."""
    version: str


class LeaseAnswer(Answer, frozen=True, kw_only=True):
    status: str
    """Always `success`: a call that fails answers an error."""
    data: LeaseData
    nonce: str
    """The `nonce` of `data` once more, for clients of an older API; so are the fields that follow."""
    expires_at: int
    """The moment when the lease ends, Unix seconds."""
    owner: str
    """The name of the token that took the lease."""
    description: str
    """The text that the owner gave for people; may be empty."""
    version: str
    """The machine's current version."""


class LeaseReleased(Answer, frozen=True, kw_only=True):
    status: str
    """Always `success`: a call that fails answers an error."""
    data: Ok


def lease_answer(data: LeaseData) -> LeaseAnswer:
    return LeaseAnswer(
        status="success",
        data=data,
        nonce=data.nonce,
        expires_at=data.expires_at,
        owner=data.owner,
        description=data.description,
        version=data.version,
    )


def lease_released() -> LeaseReleased:
    return LeaseReleased(status="success", data=Ok(ok=True))


# Calls about leases: a client's exclusive right to change a machine.


class LeaseQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Another way to say what the body says."""

    ttl: Seconds | None = None


CREATE_LEASE = Unary(
    name="create_lease",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}/lease",
    params=MachineParams,
    query=LeaseQuery,
    body=LeaseRequest,
    response=LeaseAnswer,
    tag=Tag.LEASES,
    summary="Acquire a machine's lease, or extend it with its nonce",
    status=201,
    errors=(NotFound, LeaseHeld),
    body_optional=True,
)

GET_LEASE = Unary(
    name="get_lease",
    method="GET",
    path="/v1/apps/{app_name}/machines/{machine_id}/lease",
    params=MachineParams,
    response=LeaseAnswer,
    tag=Tag.LEASES,
    summary="Show a machine's lease",
    errors=(NotFound,),
)

RELEASE_LEASE = Unary(
    name="release_lease",
    method="DELETE",
    path="/v1/apps/{app_name}/machines/{machine_id}/lease",
    params=MachineParams,
    response=LeaseReleased,
    tag=Tag.LEASES,
    summary="Release a machine's lease",
    errors=(NotFound, LeaseHeld),
    action=Action.WRITE,
)

LEASE_ROUTES = (
    CREATE_LEASE,
    GET_LEASE,
    RELEASE_LEASE,
)


class RestartQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How the running instance is ended: with `signal`, and by force after `timeout`; `force_stop` skips the signal."""

    timeout: StopSeconds | None = None
    signal: SignalName | None = None
    force_stop: bool = False


class RenameRequest(Request, frozen=True, kw_only=True):
    """A machine's name is up to 63 letters, digits, dashes, dots and underscores, beginning with a letter or digit, and
    unique in the app."""

    name: str
    """The new name of the machine."""


class WaitQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Any of the states ends the wait. `version` (older: `instance_id`) binds it to one version; `from_event_id` looks
    only at what happened after that event, where a restart or an update is no stop. `timeout` is 1 to 60 seconds."""

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
    errors=(NotFound, Conflict, LeaseHeld, WrongState, NoRoom, Damaged),
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
    errors=(NotFound, Conflict, LeaseHeld, WrongState, NoRoom, Damaged),
    timeout_s=90.0,
)

RENAME_MACHINE = Unary(
    name="rename_machine",
    method="POST",
    path="/hawker/v1/apps/{app_name}/machines/{machine_id}/name",
    params=MachineParams,
    body=RenameRequest,
    response=Ok,
    tag=Tag.MACHINES,
    summary="Give a machine another name",
    errors=(NotFound, AlreadyExists, LeaseHeld),
)

SIGNAL_MACHINE = Unary(
    name="signal_machine",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}/signal",
    params=MachineParams,
    body=SignalRequest,
    response=Ok,
    tag=Tag.MACHINES,
    summary="Send a signal to a machine's processes, whoever holds its lease",
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
    RENAME_MACHINE,
    SIGNAL_MACHINE,
    WAIT_MACHINE,
    CORDON_MACHINE,
    UNCORDON_MACHINE,
)


class MemoryAnswer(Answer, frozen=True, kw_only=True):
    """The memory limit that is enforced now, and how much of it the machine could still use; caches count as usable."""

    limit_mb: int
    """The most memory that the machine may use now, in MiB."""
    available_mb: int
    """The part of the limit that the machine could still use, in MiB, 0 to `limit_mb`."""


class SetMemoryRequest(Request, frozen=True, kw_only=True):
    limit_mb: int
    """MiB, from what its kind of machine must have to what its cpus allow; until the next start."""


class ReclaimRequest(Request, frozen=True, kw_only=True):
    amount_mb: int
    """How much memory is to be taken from the machine's caches, in MiB, 0 or more."""


class ReclaimAnswer(Answer, frozen=True, kw_only=True):
    """How much memory the machine gave back."""

    actual_mb: int
    """How much less memory the machine uses now, in MiB, 0 or more; not always what was asked for."""


# Calls about the memory of a running machine.

_PATH = "/v1/apps/{app_name}/machines/{machine_id}/memory"

GET_MEMORY = Unary(
    name="get_memory",
    method="GET",
    path=_PATH,
    params=MachineParams,
    response=MemoryAnswer,
    tag=Tag.MACHINES,
    summary="Show the memory of a running machine",
    errors=(NotFound, WrongState, NotServed),
)

SET_MEMORY = Unary(
    name="set_memory",
    method="PUT",
    path=_PATH,
    params=MachineParams,
    body=SetMemoryRequest,
    response=MemoryAnswer,
    tag=Tag.MACHINES,
    summary="Change the memory of a running machine until its next start",
    errors=(NotFound, Conflict, LeaseHeld, WrongState, DeadlineExceeded, NotServed),
    timeout_s=60.0,
)

RECLAIM_MEMORY = Unary(
    name="reclaim_memory",
    method="POST",
    path=f"{_PATH}/reclaim",
    params=MachineParams,
    body=ReclaimRequest,
    response=ReclaimAnswer,
    tag=Tag.MACHINES,
    summary="Reclaim the caches of a running machine",
    errors=(NotFound, LeaseHeld, WrongState, NotServed),
    timeout_s=60.0,
)

MEMORY_ROUTES = (GET_MEMORY, SET_MEMORY, RECLAIM_MEMORY)
