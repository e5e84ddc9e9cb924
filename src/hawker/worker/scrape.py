"""Machines' own metrics: asked of each machine when Prometheus asks for them, and kept nowhere.

A machine is as hostile as its workload: how long it may take, how much it may say and how many are asked at once are
bounded, and one that says nonsense is left out, with `hawker_machine_metrics_up` at 0.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import anyio
import msgspec
from anyio.lowlevel import checkpoint
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from hawker.config.machine import Metrics
from hawker.deferred import deferred
from hawker.fair.table import SCRAPES
from hawker.fair.threads import Pool, in_thread
from hawker.fair.turns import Turns
from hawker.ids import MachineId, NodeId
from hawker.machine import State
from hawker.record.machine import MACHINES, Network
from hawker.store.contract import Bucket, Reader
from hawker.value_object import ValueObject
from hawker.worker.usage import UsageMeter

if TYPE_CHECKING:
    import aiohttp

    from hawker.observe import metric_relabeling
else:
    aiohttp = deferred("aiohttp")
    metric_relabeling = deferred("hawker.observe.metric_relabeling")

PAGE_BYTES = 1 << 20
ALL_BYTES = 32 << 20
TIMEOUT_S = 3.0
ALL_TIMEOUT_S = 8.0  # Prometheus itself waits ten seconds by default
LEAST_BYTES = 1 << 18  # of one app, however many others there are
UP = "hawker_machine_metrics_up"
LABELS = ("app", "region", "host", "instance")
"""The labels of a machine's metrics, named as Fly names them, so that dashboards made for it fit."""
_PATH = "/metrics"
_RECORDS_AT_ONCE = 500


class _Config(msgspec.Struct, frozen=True, kw_only=True):
    metrics: Metrics | None = None


class _Exposing(msgspec.Struct, frozen=True, kw_only=True):
    """All of a machine's record that is read here; with thousands of them, the rest would hold up the loop."""

    id: MachineId
    app: str
    region: str
    state: State
    network: Network
    config: _Config


_EXPOSING = Bucket(MACHINES.name, _Exposing)


class Fetch(Protocol):
    """Asks an endpoint of a machine. Raises `ScrapeFailed`."""

    async def __call__(self, url: str, limit: int, timeout_s: float) -> bytes: ...


class ScrapeFailed(Exception):
    """The endpoint did not answer with a page."""


class HttpFetch(ValueObject, frozen=True):
    """Over the host's network. A certificate is not looked at: a machine is asked at its private address."""

    http: "Callable[[], aiohttp.ClientSession]"
    """Gives the session that all requests of the worker have."""

    async def __call__(self, url: str, limit: int, timeout_s: float) -> bytes:
        try:
            with anyio.fail_after(timeout_s):
                async with self.http().get(url, ssl=False, allow_redirects=False) as answer:
                    if answer.status != 200:
                        raise ScrapeFailed(f"status {answer.status}")
                    return await _read(answer.content, limit)
        except (OSError, TimeoutError, aiohttp.ClientError, ValueError) as error:
            raise ScrapeFailed(str(error) or type(error).__name__) from error


async def _read(content: "aiohttp.StreamReader", limit: int) -> bytes:
    read = bytearray()
    async for chunk in content.iter_any():
        read += chunk
        if len(read) > limit:
            raise ScrapeFailed(f"more than {limit} bytes")
    return bytes(read)


class _Heard:
    """What machines said, at most `each` bytes for an app."""

    def __init__(self, each: int) -> None:
        self.pages: dict[MachineId, bytes] = {}
        self._left: dict[str, int] = {}
        self._each = each

    def take(self, machine: _Exposing, said: bytes) -> None:
        left = self._left.get(machine.app, self._each) - len(said)
        if left >= 0:
            self._left[machine.app] = left
            self.pages[machine.id] = said


class Scraper:
    """Asks the started machines whose config has a metrics endpoint; what all of them use comes from the meter."""

    def __init__(self, store: Reader, node: NodeId, fetch: Fetch, meter: UsageMeter) -> None:
        self._store = store
        self._node = node
        self._fetch = fetch
        self._meter = meter
        self._turns = Turns(SCRAPES)

    async def page(self) -> str:
        """The metrics of all machines in one page: their series, and of each machine whether it was heard. Each app has
        its turn and its part of the bytes, however many machines another one has."""
        exposing = {machine.id: machine async for machine in self._exposing()}
        apps = {machine.app for machine in exposing.values()}
        heard = _Heard(max(LEAST_BYTES, ALL_BYTES // len(apps)) if apps else 0)
        with anyio.move_on_after(ALL_TIMEOUT_S):
            async with anyio.create_task_group() as tasks:
                for machine in exposing.values():
                    tasks.start_soon(self._ask, machine, heard)
        return await in_thread(Pool.PAGES, self._join, exposing, heard.pages, await self._meter.families())

    async def _exposing(self) -> AsyncIterator[_Exposing]:
        """In pages, between which the loop turns."""
        after = ""
        while page := list(self._store.scan(_EXPOSING, after=after, limit=_RECORDS_AT_ONCE)):
            for _, machine in page:
                if machine.state is State.STARTED and machine.config.metrics and machine.config.metrics.port:
                    yield machine
            after, _ = page[-1]
            await checkpoint()

    async def _ask(self, machine: _Exposing, heard: "_Heard") -> None:
        async with self._turns.hold(machine.app):
            with suppress(ScrapeFailed):
                heard.take(machine, await self._fetch(_url(machine), PAGE_BYTES, TIMEOUT_S))

    def _join(
        self, exposing: Mapping[MachineId, _Exposing], heard: Mapping[MachineId, bytes], used: list[Metric]
    ) -> str:
        """In a thread: a large page takes the text's library a third of a second."""
        pages: list[list[Metric]] = []
        up = GaugeMetricFamily(UP, "Whether the metrics endpoint of a started machine answered.", labels=LABELS)
        for machine_id, machine in sorted(exposing.items()):
            labels = dict(zip(LABELS, (machine.app, machine.region, self._node, machine_id), strict=True))
            try:
                page = metric_relabeling.MetricsPage(heard[machine_id].decode(), labels)
                pages.append(metric_relabeling.read_page(page))
            except (KeyError, ValueError):
                up.add_metric(list(labels.values()), 0)
            else:
                up.add_metric(list(labels.values()), 1)
        return metric_relabeling.one_page([*pages, [up], used])


def _url(machine: _Exposing) -> str:
    given = machine.config.metrics
    assert given is not None
    address = f"[{machine.network.private_ip}]:{given.port}"
    return f"{'https' if given.https else 'http'}://{address}{given.path or _PATH}"
