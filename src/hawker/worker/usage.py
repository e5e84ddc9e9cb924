"""What machines use, read from their control groups and links when somebody asks; nothing of it is kept."""

from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec
from anyio.lowlevel import checkpoint
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from hawker.errors import HawkerError
from hawker.ids import MachineId, NodeId
from hawker.machine import State
from hawker.record.machine import MACHINES
from hawker.runtime.driver import Driver, Stats
from hawker.store.contract import Bucket, Reader
from hawker.worker.lifecycle.host_adapters import Networks

LABELS = ("app", "region", "host", "instance")
_RECORDS_AT_ONCE = 500


class MachineUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes are None where the machine has no link of its own."""

    stats: Stats
    received_bytes: int | None
    """Since its link was made, so it may begin again at 0 with a start."""
    sent_bytes: int | None
    """Since its link was made, so it may begin again at 0 with a start."""


class _Running(msgspec.Struct, frozen=True, kw_only=True):
    """All of a machine's record that is read here."""

    id: MachineId
    app: str
    region: str
    state: State


_RUNNING = Bucket(MACHINES.name, _Running)

_FAMILIES = (
    (CounterMetricFamily, "cpu_seconds", "Cpu time that a machine used since its start.", "cpu_s"),
    (CounterMetricFamily, "cpu_throttled_seconds", "How long a machine was held back at its cpu limit.", "throttled_s"),
    (GaugeMetricFamily, "memory_bytes", "Memory of a machine, with files' pages that can be dropped.", "memory_bytes"),
    (GaugeMetricFamily, "memory_working_set_bytes", "Memory of a machine that cannot be dropped at once.",
     "working_set_bytes"),
    (GaugeMetricFamily, "memory_limit_bytes", "The memory limit of a machine.", "memory_limit_bytes"),
    (CounterMetricFamily, "oom_kills", "Processes of a machine that its memory limit ended.", "oom_kills"),
    (GaugeMetricFamily, "processes", "Processes and threads of a machine.", "pids"),
    (CounterMetricFamily, "disk_read_bytes", "What a machine read from disks.", "read_bytes"),
    (CounterMetricFamily, "disk_written_bytes", "What a machine wrote to disks.", "written_bytes"),
    (CounterMetricFamily, "network_received_bytes", "What a machine's link received.", "received_bytes"),
    (CounterMetricFamily, "network_sent_bytes", "What a machine's link sent.", "sent_bytes"),
)  # fmt: skip
USAGE_NAMES = frozenset(
    f"hawker_machine_{name}{'_total' * (kind is CounterMetricFamily)}" for kind, name, _, _ in _FAMILIES
)
"""The names of the metrics that `families` tells, as Prometheus has them."""


class UsageMeter:
    """`networks` is None on a node whose machines have the host's network."""

    def __init__(self, store: Reader, node: NodeId, driver: Driver, networks: Networks | None) -> None:
        self._store = store
        self._node = node
        self._driver = driver
        self._networks = networks

    async def read(self, machine_id: MachineId) -> MachineUsage:
        """The usage of a machine. Raises `NotFound`, and `WrongState` when the machine does not run."""
        stats = await self._driver.stats(machine_id)
        traffic = self._networks.traffic(machine_id) if self._networks is not None else None
        received, sent = traffic or (None, None)
        return MachineUsage(stats=stats, received_bytes=received, sent_bytes=sent)

    async def families(self) -> list[Metric]:
        """The usage of all started machines, for Prometheus. A machine that ends meanwhile is left out."""
        families = [kind(f"hawker_machine_{name}", text, labels=LABELS) for kind, name, text, _ in _FAMILIES]
        async for machine in self._running():
            with suppress(HawkerError):
                usage = await self.read(machine.id)
                labels = [machine.app, machine.region, self._node, machine.id]
                for family, (_, _, _, field) in zip(families, _FAMILIES, strict=True):
                    value = getattr(usage if hasattr(usage, field) else usage.stats, field)
                    if value is not None:
                        family.add_metric(labels, value)
        return [family for family in families if family.samples]

    async def _running(self) -> AsyncIterator[_Running]:
        """In pages; the loop turns after each machine."""
        after = ""
        while page := list(self._store.scan(_RUNNING, after=after, limit=_RECORDS_AT_ONCE)):
            for _, machine in page:
                if machine.state is State.STARTED:
                    yield machine
                    await checkpoint()
            after, _ = page[-1]
            await checkpoint()
