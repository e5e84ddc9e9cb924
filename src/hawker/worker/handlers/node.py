"""Answers about the node and its region."""

from collections import Counter
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
from hawker.record.gpu_claim import counted, taken
from hawker.record.machine import MACHINES
from hawker.worker.assembly import AssembledWorker

VERSION = version("hawker")


class NodeHandlers:
    def __init__(self, parts: AssembledWorker) -> None:
        self._parts = parts

    def bind(self, handlers: Handlers) -> None:
        handlers.on(HEALTH, self.health)
        handlers.on(NODE_INFO, self.info)
        handlers.on(LIST_REGIONS, self.regions)

    async def health(self, call: Call[NoParams, NoQuery, None]) -> Health:
        return Health(status="ok", version=VERSION)

    async def info(self, call: Call[NoParams, NoQuery, None]) -> NodeInfo:
        return node_info(self._parts)

    async def regions(self, call: Call[NoParams, NoQuery, None]) -> RegionList:
        """This node's own."""
        return region_list((self._parts.node.region,), self._parts.node.region)


def node_info(parts: AssembledWorker) -> NodeInfo:
    room, used = parts.room(), parts.deps.table.used(parts.deps.store)
    given = taken(parts.deps.store)
    return NodeInfo(
        id=parts.node.id,
        region=parts.node.region,
        version=VERSION,
        driver=parts.deps.driver.name,
        started_at=instant(parts.started_at),
        capacity=HostCapacity(
            cpus=room.cpus,
            memory_mb=room.memory_mib,
            disk_mb=room.disk_mib,
            shared_cpu_ratio=room.shared_ratio,
            gpus=counted(room.gpus),
        ),
        used=Amounts(
            shared_cpus=used.shared_cpus,
            performance_cpus=used.performance_cpus,
            memory_mb=used.memory_mib,
            disk_mb=used.disk_mib,
            gpus=counted(gpu for gpu in room.gpus if gpu.address in given),
        ),
        drivers=tuple(
            DriverInfo(name=each.name, usable=each.usable, reason=each.reason, chosen=each.chosen)
            for each in parts.drivers
        ),
        machines=dict(Counter(str(record.state) for _, record in parts.deps.store.scan(MACHINES))),
    )
