"""Bodies about the node itself, the regions it knows, and the output of its machines."""

from datetime import datetime

from hawker.api.bodies.body import Answer


class Health(Answer, frozen=True, kw_only=True):
    status: str
    version: str


class Amounts(Answer, frozen=True, kw_only=True):
    """Of what a node sells."""

    shared_cpus: int
    performance_cpus: int
    memory_mb: int
    disk_mb: int


class HostCapacity(Answer, frozen=True, kw_only=True):
    """`shared_cpu_ratio` is how many shared cpus are sold per cpu."""

    cpus: int
    memory_mb: int
    disk_mb: int
    shared_cpu_ratio: float


class NodeInfo(Answer, frozen=True, kw_only=True):
    """`machines` counts them by state."""

    id: str
    region: str
    version: str
    driver: str
    started_at: datetime
    capacity: HostCapacity
    used: Amounts
    machines: dict[str, int]


class Region(Answer, frozen=True, kw_only=True):
    code: str
    name: str
    latitude: float
    longitude: float
    gateway_available: bool
    requires_paid_plan: bool
    deprecated: bool


class RegionList(Answer, frozen=True, kw_only=True, rename={"regions": "Regions", "nearest": "Nearest"}):
    """Capital keys, as the live API sends them."""

    regions: tuple[Region, ...]
    nearest: str


class LogChunk(Answer, frozen=True, kw_only=True):
    """A piece of a machine's output. `position` orders pieces and resumes (`after`); `stream` is 1 for stdout or the
    terminal and 2 for stderr; `process` the index of the process; `data` base64, because output may be any bytes."""

    position: int
    at: datetime
    stream: int
    process: int
    data: bytes
