"""Bodies about machines: the machine itself, its metadata, and the orders to create and change it."""

from datetime import datetime
from enum import StrEnum
from types import NoneType

import msgspec

from hawker.api.bounds import EventsLimit, PageLimit, Signal, SignalName, StopTimeout
from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Answer, Ok, Request
from hawker.api.route import Alias, Page, Rate, Tag, Unary
from hawker.config import MachineConfig
from hawker.errors import (
    AlreadyExists,
    Conflict,
    Damaged,
    LeaseHeld,
    NoRoom,
    NotFound,
    OrderUncertain,
    Unavailable,
    WrongState,
)
from hawker.machine import State
from hawker.permission import Action


class ExitEvent(Answer, frozen=True, kw_only=True):
    """How an instance ended; every `exit` event has one. `reason` says why a workload was never executed, `fault` what
    ended a machine that did not end by itself: its kernel panicked, say. `signal` and `guest_signal` are the number of
    the signal that ended it, -1 for none."""

    exit_code: int
    """The exit code, 0 to 255; 128 and the signal's number where a signal ended the process."""
    guest_exit_code: int
    """The exit code of the process, 0 to 255; 0 where a signal ended it."""
    guest_signal: int
    oom_killed: bool
    """True when the kernel ended the instance because its memory ran out."""
    requested_stop: bool
    """True when somebody had asked for the end: a stop, a restart, an update."""
    restarting: bool
    """True when the machine's restart policy starts it again."""
    signal: int
    exited_at: datetime
    reason: str = ""
    fault: str = ""


class EventRequest(Answer, frozen=True, kw_only=True):
    """The request of an exit event; no other event has one, as clients read both fields."""

    exit_event: ExitEvent
    restart_count: int
    """Starts by the restart policy in a row up to here, 0 or more."""


class MachineEvent(Answer, frozen=True, kw_only=True):
    """`timestamp` is Unix milliseconds; `source` "user" or "flyd", the contract's word for the worker. `error` says why
    something failed, `version` which version it was; `resumed`: no new instance was started, the suspended one goes
    on."""

    id: str
    """The id of the event, a ULID: a later event of the machine has a greater one."""
    type: str
    """The kind of the event: `launch`, `start`, `stop`, `exit`, `update` and so on."""
    status: str
    """The machine's state then, or what became of the event: `failed` say."""
    source: str
    timestamp: int
    request: EventRequest | None = None
    resumed: bool = False
    error: str = ""
    version: str = ""


# Bodies about what happened to a machine.


class ImageRef(Answer, frozen=True, kw_only=True):
    """What a machine runs: `repository` at the host `registry`, which is empty for an image that is from none; `tag` is
    the one that the config names, or empty; `digest` that of the manifest for its node. `labels` are always empty."""

    registry: str
    repository: str
    tag: str
    digest: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class CheckStatus(Answer, frozen=True, kw_only=True):
    """`status` is passing, warning or critical; `updated_at` is never left out, clients read it without looking."""

    name: str
    """The check's name in the config; for a service's check `servicecheck-NUMBER-TYPE-PORT`."""
    status: str
    output: str
    """The last answer to the check, or why there was none; at most some 2 KiB, written by the machine."""
    updated_at: datetime


class ContainerStatus(Answer, frozen=True, kw_only=True):
    """`state` is pending, starting, running or exited; stopped or suspended while the machine is. `exit_code` and
    `exited_at` are of the latest run that ended, `restarts` how often it was begun again; all since the machine's
    start."""

    name: str
    """The container's name in the machine's config."""
    state: str
    restarts: int = 0
    exit_code: int | None = None
    exited_at: datetime | None = None
    oom_killed: bool = False
    """True when the kernel ended the latest run that ended, because memory ran out."""


class LeaseInfo(Answer, frozen=True, kw_only=True):
    """A lease as others see it: without its nonce. It ends at `expires_at`, Unix seconds. `owner` is the name of the
    token that took it, `description` what came with that; it may be empty."""

    description: str
    expires_at: int
    owner: str


class Machine(Answer, frozen=True, kw_only=True):
    """`instance_id` and `version` are the same value. `nonce` is sent only by create and update with a `lease_ttl`.
    `host` is the node that has it. `host_status` is "ok", or "unreachable" where that node did not answer: then this is
    what it said last, without events and checks, and in place of `config` there is `incomplete_config`, its metadata.
    `events` are newest first; `config.guest` is always there. A summary has no config."""

    id: str
    """The id of the machine, 14 hexadecimal digits, unique in the cluster."""
    name: str
    """The name of the machine, unique in the app; the node makes one up where the order gave none."""
    state: State
    region: str
    """The code of the machine's region."""
    image_ref: ImageRef
    instance_id: str
    version: str
    private_ip: str
    """The machine's IPv6 address in the app's private network; the host's where the driver gives none."""
    created_at: datetime
    updated_at: datetime
    host_status: str
    config: MachineConfig | None = None
    incomplete_config: MachineConfig | None = None
    events: tuple[MachineEvent, ...] = ()
    checks: tuple[CheckStatus, ...] = ()
    containers: tuple[ContainerStatus, ...] = ()
    cordoned: bool = False
    """True when the edge leads no traffic to the machine."""
    nonce: str | None = None
    lease: LeaseInfo | None = None
    host: str | None = None


class MachineOrder(Request, frozen=True, kw_only=True):
    """What create and update have in common. `lease_ttl` in seconds; `skip_launch` prepares the machine and leaves it
    off. `lsvd` is without effect."""

    config: MachineConfig
    name: str | None = None
    """Up to 63 letters, digits, dashes, dots and underscores, unique in the app; absent: one is made up."""
    region: str | None = None
    """A code, several with commas, or an alias; absent: a host of any region may take it."""
    lease_ttl: int | None = None
    skip_launch: bool | None = None
    skip_service_registration: bool | None = None
    """The machine is cordoned from its beginning: no traffic is led to it."""
    skip_secrets: bool | None = None
    """True: this version is given none of the app's secrets; then the config can name none."""
    min_secrets_version: int | None = None
    """The version of the secrets that the caller has seen; a node that knows only older ones refuses."""
    lsvd: bool | None = None


class CreateMachineRequest(MachineOrder, frozen=True, kw_only=True):
    """The order of a new machine."""


class UpdateMachineRequest(MachineOrder, frozen=True, kw_only=True):
    """The whole config, not a part. `current_version` guards against a concurrent update."""

    current_version: str | None = None


class MachineVersion(Answer, frozen=True, kw_only=True):
    version: str
    """The version, a ULID: a later version of the machine has a greater one."""
    user_config: MachineConfig


class StartAnswer(Answer, frozen=True, kw_only=True):
    """A start moves no machine to another host: `migrated` is always false, and `new_host` empty."""

    previous_state: State
    migrated: bool
    new_host: str


class SuspendAnswer(Answer, frozen=True, kw_only=True):
    """`ok` is always true. `kind` is how the node suspends: with `freeze`, the machine stays in the node's memory, and
    is lost with it; with `snapshot`, its memory is on the node's disk, also after a reboot."""

    ok: bool
    kind: str


class StopRequest(Request, frozen=True, kw_only=True):
    """`timeout` is a Go duration, or integer nanoseconds. `id` repeats the machine's id and means nothing."""

    id: str | None = None
    signal: SignalName | None = None
    timeout: StopTimeout | None = None


class SignalRequest(Request, frozen=True, kw_only=True):
    """The `signal` that the machine's processes get: a name with or without SIG, or a number."""

    signal: Signal


class WaitState(StrEnum):
    """A state that a call can wait for; `settled` is any resting state."""

    STARTED = "started"
    STOPPED = "stopped"
    SUSPENDED = "suspended"
    DESTROYED = "destroyed"
    FAILED = "failed"
    SETTLED = "settled"


class WaitAnswer(Answer, frozen=True, kw_only=True):
    ok: bool
    """Always true: where the state did not come, an error is answered."""
    state: State
    version: str
    """The machine's version as it came to the state."""
    event_id: str
    """The id of the machine's last event: with it as `from_event_id` a wait begins behind that event."""


# Calls that create, show, change and destroy machines.


class MachineParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    """The app that the machine must be one of; else it is not found."""
    machine_id: str
    """The machine's id, 14 hexadecimal digits."""


class ListMachinesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`metadata.KEY=VALUE` selects by metadata; a `summary` leaves out config, events and checks. Without a `limit` the
    whole list is answered."""

    include_deleted: bool = False
    """True also lists destroyed machines, as long as the node keeps their records."""
    region: str | None = None
    """The code of a region: the answer has only machines of it; absent: of all regions."""
    state: tuple[State, ...] = ()
    summary: bool = False
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    """All of these keys must have these values; empty selects every machine."""
    include_leases: bool = False
    """True also shows who holds a lease on each machine, and until when."""
    limit: PageLimit | None = None
    cursor: str | None = None
    """The cursor that the page before gave (`fly-next-cursor`); absent: the first page."""


class GetMachineQuery(msgspec.Struct, frozen=True, kw_only=True):
    """With an old `version` the machine is shown in the state replaced."""

    version: str | None = None
    include_leases: bool = False
    """True also shows who holds a lease on the machine, and until when."""


class DeleteMachineQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`force` ends a running machine first; `kill` is flyctl's word for it."""

    force: bool = False
    kill: bool = False


class ListEventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`limit` is at most 50."""

    limit: EventsLimit = 20


LIST_MACHINES = Unary(
    name="list_machines",
    method="GET",
    path="/v1/apps/{app_name}/machines",
    params=AppParams,
    query=ListMachinesQuery,
    response=Page[Machine],
    tag=Tag.MACHINES,
    summary="List an app's machines",
    errors=(NotFound,),
)

CREATE_MACHINE = Unary(
    name="create_machine",
    method="POST",
    path="/v1/apps/{app_name}/machines",
    params=AppParams,
    body=CreateMachineRequest,
    response=Machine,
    tag=Tag.MACHINES,
    summary="Order a machine: it is created and starts, or the order is refused",
    errors=(NotFound, AlreadyExists, NoRoom, OrderUncertain, Unavailable, Damaged),
    action=Action.CREATE,
    strict=True,
    keyed=True,
    timeout_s=90.0,
)

GET_MACHINE = Unary(
    name="get_machine",
    method="GET",
    path="/v1/apps/{app_name}/machines/{machine_id}",
    params=MachineParams,
    query=GetMachineQuery,
    response=Machine,
    tag=Tag.MACHINES,
    summary="Show a machine",
    errors=(NotFound,),
    rate=Rate.LOOK,
)

UPDATE_MACHINE = Unary(
    name="update_machine",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}",
    params=MachineParams,
    body=UpdateMachineRequest,
    response=Machine,
    tag=Tag.MACHINES,
    summary="Update a machine's config, which makes a new version and restarts it",
    errors=(NotFound, Conflict, LeaseHeld, WrongState, NoRoom, Unavailable, Damaged),
    strict=True,
    timeout_s=90.0,
)

DELETE_MACHINE = Unary(
    name="delete_machine",
    method="DELETE",
    path="/v1/apps/{app_name}/machines/{machine_id}",
    params=MachineParams,
    query=DeleteMachineQuery,
    response=Ok,
    tag=Tag.MACHINES,
    summary="Destroy a machine",
    errors=(NotFound, Conflict, LeaseHeld, WrongState),
    timeout_s=90.0,
)

LIST_EVENTS = Unary(
    name="list_events",
    method="GET",
    path="/v1/apps/{app_name}/machines/{machine_id}/events",
    params=MachineParams,
    query=ListEventsQuery,
    response=tuple[MachineEvent, ...],
    tag=Tag.MACHINES,
    summary="List what happened to a machine, newest first",
    errors=(NotFound,),
)

LIST_VERSIONS = Unary(
    name="list_versions",
    method="GET",
    path="/v1/apps/{app_name}/machines/{machine_id}/versions",
    params=MachineParams,
    response=tuple[MachineVersion, ...],
    tag=Tag.MACHINES,
    summary="List the versions of a machine's config, newest first",
    errors=(NotFound,),
)

MACHINE_ROUTES = (
    LIST_MACHINES,
    CREATE_MACHINE,
    GET_MACHINE,
    UPDATE_MACHINE,
    DELETE_MACHINE,
    LIST_EVENTS,
    LIST_VERSIONS,
)


class UpdateMetadataRequest(Request, frozen=True, kw_only=True):
    """`metadata`: null or "" removes a key; keys that are not named stay. A stale `machine_version` is refused.
    `updated_at` is without effect."""

    metadata: dict[str, str | None] | None = None
    machine_version: str | None = None
    updated_at: str | None = None


class SetMetadataRequest(Request, frozen=True, kw_only=True):
    """The key's `value`; "" removes it. `updated_at` is without effect."""

    value: str
    updated_at: str | None = None


class MetadataValue(Answer, frozen=True, kw_only=True):
    value: str
    """The value of the key; never empty, as an empty value removes a key."""


# Calls about a machine's metadata. They need no lease and make no new version.


class MetadataKeyParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    """The app that the machine is one of."""
    machine_id: str
    """The machine's id, 14 hexadecimal digits."""
    key: str
    """The one entry of the machine's metadata that is read, set or removed."""


LIST_METADATA = Unary(
    name="list_metadata",
    method="GET",
    path="/v1/apps/{app_name}/machines/{machine_id}/metadata",
    params=MachineParams,
    response=dict[str, str],
    tag=Tag.METADATA,
    summary="Show a machine's metadata",
    errors=(NotFound,),
)

UPDATE_METADATA = Unary(
    name="update_metadata",
    method="PATCH",
    path="/v1/apps/{app_name}/machines/{machine_id}/metadata",
    params=MachineParams,
    body=UpdateMetadataRequest,
    response=NoneType,
    tag=Tag.METADATA,
    summary="Set and remove several keys",
    status=204,
    errors=(NotFound, WrongState),
    aliases=(Alias("PUT", "/v1/apps/{app_name}/machines/{machine_id}/metadata"),),
)

GET_METADATA = Unary(
    name="get_metadata",
    method="GET",
    path="/v1/apps/{app_name}/machines/{machine_id}/metadata/{key}",
    params=MetadataKeyParams,
    response=MetadataValue,
    tag=Tag.METADATA,
    summary="Show one key",
    errors=(NotFound,),
)

SET_METADATA = Unary(
    name="set_metadata",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}/metadata/{key}",
    params=MetadataKeyParams,
    body=SetMetadataRequest,
    response=NoneType,
    tag=Tag.METADATA,
    summary="Set one key",
    status=204,
    errors=(NotFound, WrongState),
    action=Action.WRITE,
)

DELETE_METADATA = Unary(
    name="delete_metadata",
    method="DELETE",
    path="/v1/apps/{app_name}/machines/{machine_id}/metadata/{key}",
    params=MetadataKeyParams,
    response=NoneType,
    tag=Tag.METADATA,
    summary="Remove one key",
    status=204,
    errors=(NotFound, WrongState),
)

METADATA_ROUTES = (
    LIST_METADATA,
    UPDATE_METADATA,
    GET_METADATA,
    SET_METADATA,
    DELETE_METADATA,
)
