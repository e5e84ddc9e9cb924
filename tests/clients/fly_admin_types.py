"""What fly-admin's declarations (`dist/lib/*.d.ts`) say that its calls give, as far as a field must be there."""

from typing import Any, Literal

import msgspec


class Organization(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    slug: str


class App(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    status: Literal["deployed", "pending", "suspended"]
    organization: Organization


class AppOverview(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    machine_count: int
    network: str


class Apps(msgspec.Struct, frozen=True, kw_only=True):
    total_apps: int
    apps: list[AppOverview]


class IpAddress(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    address: str


class DetailedApp(App, frozen=True, kw_only=True):
    ipAddresses: list[IpAddress]


class OrganizationFound(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    slug: str
    name: str
    type: Literal["PERSONAL", "SHARED"]
    viewerRole: Literal["admin", "member"]


class OrganizationAnswer(msgspec.Struct, frozen=True, kw_only=True):
    organization: OrganizationFound


class Region(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    code: str
    latitude: float
    longitude: float
    gatewayAvailable: bool
    requiresPaidPlan: bool


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    requestRegion: str
    regions: list[Region]


class PlatformAnswer(msgspec.Struct, frozen=True, kw_only=True):
    platform: Platform


class AllocatedAddress(IpAddress, frozen=True, kw_only=True):
    id: str
    region: str
    createdAt: str


class Allocated(msgspec.Struct, frozen=True, kw_only=True):
    ipAddress: AllocatedAddress | None


class AllocateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    allocateIpAddress: Allocated


class AppNamed(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class Released(msgspec.Struct, frozen=True, kw_only=True):
    app: AppNamed


class ReleaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    releaseIpAddress: Released


class ExitEvent(msgspec.Struct, frozen=True, kw_only=True):
    requested_stop: bool
    restarting: bool
    guest_exit_code: int
    guest_signal: int
    exit_code: int
    signal: int
    oom_killed: bool
    exited_at: str


class EventRequest(msgspec.Struct, frozen=True, kw_only=True):
    restart_count: int = 0
    exit_event: ExitEvent | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: str
    status: str
    source: Literal["flyd", "user"]
    timestamp: int
    request: EventRequest | None = None


class ImageRef(msgspec.Struct, frozen=True, kw_only=True):
    registry: str
    repository: str
    tag: str
    digest: str


class Guest(msgspec.Struct, frozen=True, kw_only=True):
    cpu_kind: Literal["shared", "performance"]
    cpus: int
    memory_mb: int


class Config(msgspec.Struct, frozen=True, kw_only=True):
    image: str
    guest: Guest
    env: dict[str, str] = {}
    metadata: dict[str, str] = {}


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    state: str
    region: str
    instance_id: str
    private_ip: str
    config: Config
    image_ref: ImageRef
    created_at: str
    updated_at: str
    events: list[Event]
    cordoned: bool = False


class Ok(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool


class Version(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    user_config: Config


class ListenSocket(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    proto: str


class ProcessStat(msgspec.Struct, frozen=True, kw_only=True):
    command: str
    cpu: float
    directory: str
    listen_sockets: list[ListenSocket]
    pid: int
    rss: int
    rtime: int
    stime: int


class LeaseData(msgspec.Struct, frozen=True, kw_only=True):
    description: str
    expires_at: int
    nonce: str
    owner: str


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["success"]
    data: LeaseData


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    state: str
    size_gb: int
    region: str
    zone: str
    encrypted: bool
    created_at: str
    blocks: int
    block_size: int
    blocks_free: int
    blocks_avail: int
    fstype: str
    attached_machine_id: str | None
    attached_alloc_id: str | None


class Extended(msgspec.Struct, frozen=True, kw_only=True):
    needs_restart: bool
    volume: Volume


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    created_at: str
    digest: str
    size: int


Raw = dict[str, Any]
