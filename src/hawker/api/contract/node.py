"""Bodies about the node itself, the regions it knows, the output of its machines, what is wrong on it, and copies of
its store.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.route import NoParams, Stream, Tag, Unary
from hawker.errors import NotServed, Unavailable
from hawker.permission import Action
from hawker.region import SPOTS


class Health(Answer, frozen=True, kw_only=True):
    status: str
    """Always `ok`: the node answers."""
    version: str
    """The version of hawker at the node."""


class Amounts(Answer, frozen=True, kw_only=True):
    """Amounts of what a node sells; `gpus` counts whole devices by kind."""

    shared_cpus: int
    """How many shared cpus, 0 or more, as machines order them."""
    performance_cpus: int
    """How many performance cpus, 0 or more, as machines order them."""
    memory_mb: int
    """The memory, in MiB."""
    disk_mb: int
    """The disk space for volumes and root filesystems, in MiB."""
    gpus: dict[str, int] = msgspec.field(default_factory=dict)


class HostCapacity(Answer, frozen=True, kw_only=True):
    """`shared_cpu_ratio` is how many shared cpus are sold per cpu; `gpus` counts whole devices by kind."""

    cpus: int
    """How many whole cpus of the host are for sale, 0 or more."""
    memory_mb: int
    """Memory of the host that is for sale, in MiB."""
    disk_mb: int
    """Disk space of the host that is for sale, in MiB."""
    shared_cpu_ratio: float
    gpus: dict[str, int] = msgspec.field(default_factory=dict)


class DriverInfo(Answer, frozen=True, kw_only=True):
    """Whether the node could run machines in this way, as far as it looked, and why."""

    name: str
    """The name of the driver, as `hawker up --driver` takes it."""
    usable: bool
    """True when the node could run machines with the driver."""
    reason: str
    """A sentence for people: what is missing for the driver, or what the node saw."""
    chosen: bool
    """True for the driver that the node runs machines with."""


class NodeInfo(Answer, frozen=True, kw_only=True):
    """`machines` counts them by state; `drivers` has the best first. `resumes` is the virtual machine monitor whose
    suspended machines go on here, by name and version, on a cpu of the model `cpu_model`; both are empty where machines
    are not suspended to disk."""

    id: str
    """The id of the node; it stays with its data directory."""
    region: str
    """The code of the node's region."""
    version: str
    """The version of hawker that the node runs."""
    driver: str
    """The name of the driver that runs the node's machines."""
    started_at: datetime
    capacity: HostCapacity
    used: Amounts
    machines: dict[str, int]
    resumes: str = ""
    cpu_model: str = ""
    drivers: tuple[DriverInfo, ...] = ()
    edge_processes: int = 1
    """How many processes serve published ports, 1 to 8."""


class Region(Answer, frozen=True, kw_only=True):
    code: str
    """The code of the region, as a rule the three letters of an airport: `ams`."""
    name: str
    """The city and country of the region, for people; the code where they are not known."""
    latitude: float
    """Degrees north, -90 to 90; 0 for a code that is no known place."""
    longitude: float
    """Degrees east, -180 to 180; 0 for a code that is no known place."""
    gateway_available: bool
    """Always true: computers may come in over WireGuard."""
    requires_paid_plan: bool
    """Always false: nothing is paid for here."""
    deprecated: bool
    """Always false: clients read it."""
    mpg_available: bool = False
    """Always false: there are no managed databases."""
    geo_region: str = ""
    """The part of the world that the region is in; empty for a code that is no known place."""


class RegionList(Answer, frozen=True, kw_only=True):
    """The regions, in the document's spelling and once more in the live API's."""

    regions: tuple[Region, ...]
    nearest: str
    """The code of the region of the node that answers."""
    Regions: tuple[Region, ...]
    Nearest: str
    """The value of `nearest` once more, as the live API spells it."""


class LogChunk(Answer, frozen=True, kw_only=True):
    """A piece of a machine's output. `position` orders pieces and resumes (`after`); `stream` is 1 for stdout or the
    terminal and 2 for stderr; `process` the index of the process, `container` its name if it is one; `instance` the
    machine's instance, whose positions begin anew; `data` base64, because output may be any bytes."""

    position: int
    at: datetime
    stream: int
    process: int
    container: str = ""
    instance: str = ""
    data: bytes


# Calls about the node itself and its regions.

HEALTH = Unary(
    name="health",
    method="GET",
    path="/hawker/v1/health",
    params=NoParams,
    response=Health,
    tag=Tag.NODE,
    summary="Whether the node answers",
    auth=False,
)

NODE_INFO = Unary(
    name="node_info",
    method="GET",
    path="/hawker/v1/node",
    params=NoParams,
    response=NodeInfo,
    tag=Tag.NODE,
    summary="Show the node's capacity and use",
)

METRICS = Unary(
    name="metrics",
    method="GET",
    path="/metrics",
    params=NoParams,
    response=str,
    tag=Tag.NODE,
    summary="Metrics of the node, for Prometheus",
    action=Action.METRICS,
    media="text/plain; version=0.0.4; charset=utf-8",
)

MACHINE_METRICS = Unary(
    name="machine_metrics",
    method="GET",
    path="/metrics/machines",
    params=NoParams,
    response=str,
    tag=Tag.NODE,
    summary="Metrics of the machines, for Prometheus, with labels of app and machine",
    action=Action.METRICS,
    media="text/plain; version=0.0.4; charset=utf-8",
)

EDGE_METRICS = Unary(
    name="edge_metrics",
    method="GET",
    path="/metrics/edge",
    params=NoParams,
    response=str,
    tag=Tag.NODE,
    summary="Metrics of what clients get from the edge of the node, for Prometheus, with a label of the app",
    action=Action.METRICS,
    media="text/plain; version=0.0.4; charset=utf-8",
)

LIST_REGIONS = Unary(
    name="list_regions",
    method="GET",
    path="/v1/platform/regions",
    params=NoParams,
    response=RegionList,
    tag=Tag.PLATFORM,
    summary="List regions",
    auth=False,
)

NODE_ROUTES = (
    HEALTH,
    NODE_INFO,
    METRICS,
    MACHINE_METRICS,
    EDGE_METRICS,
    LIST_REGIONS,
)


def region_of(code: str) -> Region:
    """One that is on no map is at 0, 0."""
    spot = SPOTS.get(code)
    return Region(
        code=code,
        name=spot.name if spot else code,
        latitude=spot.latitude if spot else 0.0,
        longitude=spot.longitude if spot else 0.0,
        gateway_available=True,
        requires_paid_plan=False,
        deprecated=False,
        geo_region=spot.area.value if spot else "",
    )


def region_list(codes: Iterable[str], nearest: str) -> RegionList:
    regions = tuple(map(region_of, sorted(set(codes))))
    return RegionList(regions=regions, nearest=nearest, Regions=regions, Nearest=nearest)


class FindingInfo(Answer, frozen=True, kw_only=True):
    """`about` is a machine's id, or the name of what belongs to no machine. `repair` is what mends it, `by` who may do
    so: node (every minute), operator, force or nobody. `outcome` is set once a repair was asked for: mended, failed
    (`error` says why) or left."""

    kind: str
    """The kind of fault, for programs: one word with dashes or underscores."""
    about: str
    detail: str
    """A sentence for people: what the node saw."""
    repair: str
    by: str
    outcome: str | None = None
    error: str | None = None


class FindingList(Answer, frozen=True, kw_only=True):
    findings: tuple[FindingInfo, ...]


class RepairRequest(Request, frozen=True, kw_only=True):
    """`end_foreign` also ends machines that another store has made, running or not."""

    end_foreign: bool | None = None


class BackupPart(Answer, frozen=True, kw_only=True):
    """A piece of a copy of the store; `data` is base64. The last one has no data, and says what the whole is."""

    data: bytes = b""
    size_bytes: int | None = None
    """Bytes of all pieces together; only the last piece has it."""
    sha256: str | None = None
    """The SHA-256 of all pieces together, 64 hexadecimal digits; only the last piece has it."""


# Calls about what is wrong on the node, and for a copy of its store. For operators: not part of the Machines API.

LIST_FINDINGS = Unary(
    name="list_findings",
    method="GET",
    path="/internal/v1/findings",
    params=NoParams,
    response=FindingList,
    tag=Tag.NODE,
    summary="Compare store and host, and report what is wrong",
    errors=(Unavailable,),
    timeout_s=120.0,
)

REPAIR_FINDINGS = Unary(
    name="repair_findings",
    method="POST",
    path="/internal/v1/findings/repair",
    params=NoParams,
    body=RepairRequest,
    response=FindingList,
    tag=Tag.NODE,
    summary="Compare store and host, and repair what is wrong",
    errors=(Unavailable,),
    action=Action.ALL,
    body_optional=True,
    strict=True,
    timeout_s=300.0,
)

BACK_UP = Stream(
    name="back_up",
    method="GET",
    path="/internal/v1/backup",
    params=NoParams,
    response=BackupPart,
    tag=Tag.NODE,
    summary="Copy the node's store while it is in use",
    errors=(NotServed, Unavailable),
    action=Action.ALL,
)

DOCTOR_ROUTES = (LIST_FINDINGS, REPAIR_FINDINGS, BACK_UP)
