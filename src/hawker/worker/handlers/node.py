"""Answers about the node and its region."""

from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import version

from hawker.api.contract.body import instant
from hawker.api.contract.node import (
    HEALTH,
    LIST_REGIONS,
    NODE_INFO,
    Amounts,
    DriverInfo,
    Health,
    HostCapacity,
    NodeInfo,
    RegionList,
)
from hawker.api.handlers import Handlers
from hawker.api.regions import region_list
from hawker.api.route import Call, NoParams, NoQuery
from hawker.node import Capacity
from hawker.record.capacity import used
from hawker.record.gpu_claim import counted, taken
from hawker.record.machine import MACHINES
from hawker.record.node import NodeRecord
from hawker.runtime.driver_probe import DriverVerdict
from hawker.store.contract import Store

VERSION = version("hawker")


class NodeHandlers:
    def __init__(self, node: NodeRecord, node_info: Callable[[], NodeInfo]) -> None:
        self._node = node
        self._node_info = node_info

    def bind(self, handlers: Handlers) -> None:
        handlers.on(HEALTH, self.health)
        handlers.on(NODE_INFO, self.info)
        handlers.on(LIST_REGIONS, self.regions)

    async def health(self, call: Call[NoParams, NoQuery, None]) -> Health:
        return Health(status="ok", version=VERSION)

    async def info(self, call: Call[NoParams, NoQuery, None]) -> NodeInfo:
        return self._node_info()

    async def regions(self, call: Call[NoParams, NoQuery, None]) -> RegionList:
        """This node's own."""
        return region_list((self._node.region,), self._node.region)


def node_info(
    node: NodeRecord,
    store: Store,
    driver: str,
    drivers: Sequence[DriverVerdict],
    room: Callable[[], Capacity],
    started_at: float,
) -> NodeInfo:
    """What the node is, has and holds now. `started_at` is Unix seconds."""
    there, held = room(), used(store)
    given = taken(store)
    return NodeInfo(
        id=node.id,
        region=node.region,
        version=VERSION,
        driver=driver,
        started_at=instant(started_at),
        capacity=HostCapacity(
            cpus=there.cpus,
            memory_mb=there.memory_mib,
            disk_mb=there.disk_mib,
            shared_cpu_ratio=there.shared_ratio,
            gpus=counted(there.gpus),
        ),
        used=Amounts(
            shared_cpus=held.shared_cpus,
            performance_cpus=held.performance_cpus,
            memory_mb=held.memory_mib,
            disk_mb=held.disk_mib,
            gpus=counted(gpu for gpu in there.gpus if gpu.address in given),
        ),
        drivers=tuple(
            DriverInfo(name=each.name, usable=each.usable, reason=each.reason, chosen=each.chosen) for each in drivers
        ),
        machines=dict(Counter(str(record.state) for _, record in store.scan(MACHINES))),
    )
