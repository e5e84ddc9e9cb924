"""Bodies about machines: the machine itself, and the orders to create, update and move it between states."""

from datetime import datetime
from enum import StrEnum

import msgspec

from hawker.api.bodies.body import Answer, Request
from hawker.api.bodies.event import MachineEvent
from hawker.api.bounds import Signal, SignalName, StopTimeout
from hawker.config import MachineConfig
from hawker.machine import State


class ImageRef(Answer, frozen=True, kw_only=True):
    registry: str
    repository: str
    tag: str
    digest: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class CheckStatus(Answer, frozen=True, kw_only=True):
    """`status` is passing, warning or critical; `updated_at` is never left out, clients read it without looking."""

    name: str
    status: str
    output: str
    updated_at: datetime


class ContainerStatus(Answer, frozen=True, kw_only=True):
    """`state` is pending, starting, running or exited; stopped or suspended while the machine is."""

    name: str
    state: str


class LeaseInfo(Answer, frozen=True, kw_only=True):
    """A lease as others see it: without its nonce."""

    description: str
    expires_at: int
    owner: str


class Machine(Answer, frozen=True, kw_only=True):
    """`instance_id` and `version` are the same value. `nonce` is sent only by create and update with a `lease_ttl`;
    `host_status` is always "ok"; `events` are newest first; `config.guest` is always there. A summary has no config."""

    id: str
    name: str
    state: State
    region: str
    image_ref: ImageRef
    instance_id: str
    version: str
    private_ip: str
    created_at: datetime
    updated_at: datetime
    host_status: str
    config: MachineConfig | None = None
    events: tuple[MachineEvent, ...] = ()
    checks: tuple[CheckStatus, ...] = ()
    containers: tuple[ContainerStatus, ...] = ()
    cordoned: bool = False
    nonce: str | None = None
    lease: LeaseInfo | None = None


class MachineOrder(Request, frozen=True, kw_only=True):
    """What create and update have in common. `lease_ttl` in seconds; `skip_launch` prepares the machine and leaves it
    off."""

    config: MachineConfig
    name: str | None = None
    region: str | None = None
    lease_ttl: int | None = None
    skip_launch: bool | None = None
    skip_service_registration: bool | None = None
    skip_secrets: bool | None = None
    min_secrets_version: int | None = None
    lsvd: bool | None = None


class CreateMachineRequest(MachineOrder, frozen=True, kw_only=True):
    """A new machine."""


class UpdateMachineRequest(MachineOrder, frozen=True, kw_only=True):
    """The whole config, not a part. `current_version` guards against a concurrent update."""

    current_version: str | None = None


class MachineVersion(Answer, frozen=True, kw_only=True):
    version: str
    user_config: MachineConfig


class StartAnswer(Answer, frozen=True, kw_only=True):
    previous_state: State
    migrated: bool
    new_host: str


class SuspendAnswer(Answer, frozen=True, kw_only=True):
    """`kind` is how the node suspends: with `freeze`, the machine stays in the node's memory, and is lost with it; with
    `snapshot`, its memory is on the node's disk, also after a reboot."""

    ok: bool
    kind: str


class StopRequest(Request, frozen=True, kw_only=True):
    """`timeout` is a Go duration, or integer nanoseconds. `id` repeats the machine's id and means nothing."""

    id: str | None = None
    signal: SignalName | None = None
    timeout: StopTimeout | None = None


class SignalRequest(Request, frozen=True, kw_only=True):
    """A name with or without SIG, or a number."""

    signal: Signal


class WaitState(StrEnum):
    """What can be waited for; `settled` is any resting state."""

    STARTED = "started"
    STOPPED = "stopped"
    SUSPENDED = "suspended"
    DESTROYED = "destroyed"
    FAILED = "failed"
    SETTLED = "settled"


class WaitAnswer(Answer, frozen=True, kw_only=True):
    ok: bool
    state: State
    version: str
    event_id: str
