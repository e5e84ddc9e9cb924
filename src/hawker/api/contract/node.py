"""Bodies about the node itself, the regions it knows, and the output of its machines."""

from datetime import datetime

import msgspec

from hawker.api.contract.body import Answer
from hawker.api.route import NoParams, Tag, Unary


class Health(Answer, frozen=True, kw_only=True):
    status: str
    version: str


class Amounts(Answer, frozen=True, kw_only=True):
    """Of what a node sells; `gpus` by kind."""

    shared_cpus: int
    performance_cpus: int
    memory_mb: int
    disk_mb: int
    gpus: dict[str, int] = msgspec.field(default_factory=dict)


class HostCapacity(Answer, frozen=True, kw_only=True):
    """`shared_cpu_ratio` is how many shared cpus are sold per cpu; `gpus` counts whole devices by kind."""

    cpus: int
    memory_mb: int
    disk_mb: int
    shared_cpu_ratio: float
    gpus: dict[str, int] = msgspec.field(default_factory=dict)


class DriverInfo(Answer, frozen=True, kw_only=True):
    """Whether the node could run machines in this way, as far as it looked, and why."""

    name: str
    usable: bool
    reason: str
    chosen: bool


class NodeInfo(Answer, frozen=True, kw_only=True):
    """`machines` counts them by state; `drivers` has the best first."""

    id: str
    region: str
    version: str
    driver: str
    started_at: datetime
    capacity: HostCapacity
    used: Amounts
    machines: dict[str, int]
    drivers: tuple[DriverInfo, ...] = ()


class Region(Answer, frozen=True, kw_only=True):
    code: str
    name: str
    latitude: float
    longitude: float
    gateway_available: bool
    requires_paid_plan: bool
    deprecated: bool
    mpg_available: bool = False
    geo_region: str = ""


class RegionList(Answer, frozen=True, kw_only=True):
    """In both spellings: the document's and the live API's."""

    regions: tuple[Region, ...]
    nearest: str
    Regions: tuple[Region, ...]
    Nearest: str


class LogChunk(Answer, frozen=True, kw_only=True):
    """A piece of a machine's output. `position` orders pieces and resumes (`after`); `stream` is 1 for stdout or the
    terminal and 2 for stderr; `process` the index of the process, `container` its name if it is one; `data` base64,
    because output may be any bytes."""

    position: int
    at: datetime
    stream: int
    process: int
    container: str = ""
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
    LIST_REGIONS,
)
