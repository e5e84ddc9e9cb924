"""Answers about the node and its region."""

from collections import Counter
from importlib.metadata import version

from hawker.api.bodies import Amounts, Health, HostCapacity, NodeInfo, Region, RegionList, instant
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.api.routes import HEALTH, LIST_REGIONS, NODE_INFO
from hawker.worker.parts import Parts
from hawker.worker.records import MACHINES

VERSION = version("hawker")


class NodeHandlers:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def bind(self, handlers: Handlers) -> None:
        handlers.on(HEALTH, self.health)
        handlers.on(NODE_INFO, self.info)
        handlers.on(LIST_REGIONS, self.regions)

    async def health(self, call: Call[NoParams, NoQuery, None]) -> Health:
        return Health(status="ok", version=VERSION)

    async def info(self, call: Call[NoParams, NoQuery, None]) -> NodeInfo:
        parts = self._parts
        room, used = parts.room(), parts.deps.table.used(parts.deps.store)
        return NodeInfo(
            id=parts.node.id,
            region=parts.node.region,
            version=VERSION,
            driver=parts.deps.driver.name,
            started_at=instant(parts.started_at),
            capacity=HostCapacity(
                cpus=room.cpus, memory_mb=room.memory_mib, disk_mb=room.disk_mib, shared_cpu_ratio=room.shared_ratio
            ),
            used=Amounts(
                shared_cpus=used.shared_cpus,
                performance_cpus=used.performance_cpus,
                memory_mb=used.memory_mib,
                disk_mb=used.disk_mib,
            ),
            machines=dict(Counter(str(record.state) for _, record in parts.deps.store.scan(MACHINES))),
        )

    async def regions(self, call: Call[NoParams, NoQuery, None]) -> RegionList:
        code = self._parts.node.region
        region = Region(
            code=code,
            name=code,
            latitude=0.0,
            longitude=0.0,
            gateway_available=True,
            requires_paid_plan=False,
            deprecated=False,
        )
        return RegionList(regions=(region,), nearest=code)
