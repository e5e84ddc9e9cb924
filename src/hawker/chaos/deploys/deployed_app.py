"""The app of a trial on a real fleet, as its clients see it: at whichever broker can be reached."""

import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from anyio.to_thread import run_sync

from hawker.api.client import Client
from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.cluster import LIST_NODES
from hawker.api.contract.deploy import DeployParams
from hawker.api.contract.machine import CREATE_MACHINE, LIST_MACHINES, CreateMachineRequest, Machine
from hawker.api.route import B, P, Q, R, Unary
from hawker.chaos.daemon import HAWKER
from hawker.chaos.fleet.network_lab import NetworkLab
from hawker.chaos.fleet.real_fleet import LabFleet, LabNode
from hawker.clock import Clock
from hawker.config import PUBLISH
from hawker.errors import BadRequest, DeadlineExceeded, HawkerError, Unavailable, Unprocessable
from hawker.feed import EVERYWHERE
from hawker.flytoml.machines import GROUP, PLATFORM
from hawker.gossip.contract import Fate
from hawker.ids import NodeId
from hawker.log import Secret
from hawker.machine import GONE, State
from hawker.proof.deploy_checks import DeploySight, deploys_over
from hawker.record.app import APPS
from hawker.store.sqlite import SqliteStore

APP = "shop"
PORT = 18_500
IMAGE = "hawker/hello"
WITHIN_S = 150.0
LOOK_S = 0.1
HERE = AppParams(app_name=APP)
_CALL_S = 5.0
_FLAGS = ("--cpus", "16", "--memory-mib", "8192")
_MARKET = "[limits]\nbid_deadline_s = 4.0\n"  # nodes of one busy host need longer than a fleet's

T = TypeVar("T")


class TooEarly(Unavailable):
    """A deploy was over before its blow."""


@contextmanager
def edge_fleet(
    directory: Path,
    clock: Clock,
    nodes: int,
    regions: Sequence[str],
    *,
    driver: str = "container",
    edge_processes: int = 1,
) -> Iterator[LabFleet]:
    """So many real nodes below that directory, each with an edge at its host's address, of so many processes at each
    second one. `regions` are dealt to them in turn."""
    (directory / "market.toml").write_text(_MARKET)
    for name in ("street", "nodes"):
        (directory / name).mkdir()
    flags = (*_FLAGS, "--market", str(directory / "market.toml"))
    with NetworkLab(directory / "street", nodes) as lab:
        fleet = LabFleet(lab, directory / "nodes", clock, *flags, driver=driver, regions=regions)
        for stall in fleet.stalls:
            own = ("--label", f"host={stall.host.number}", "--edge-address", stall.host.address)
            several = ("--edge-processes", str(edge_processes)) if stall.host.number % 2 == 0 else ()
            stall.daemon.flags = (*stall.daemon.flags, *own, *several)
        with fleet:
            yield fleet


@asynccontextmanager
async def app_of(
    fleet: LabFleet,
    clock: Clock,
    regions: Sequence[str],
    *,
    each: int = 1,
    words: Callable[[int], dict[str, Any]] = lambda host: {},
) -> AsyncIterator["DeployedApp"]:
    """The app of a fleet whose hosts were dealt these regions, with `each` machines at a host once it is stocked.
    `words` are what the config of a host's machines says more, by the host's number."""
    token = Secret(fleet.stalls[0].daemon.token)
    async with AsyncExitStack() as stack:
        clients = {stall.id: await stack.enter_async_context(Client(stall.url, token)) for stall in fleet.stalls}
        dealt = [regions[number % len(regions)] for number in range(len(fleet.stalls))]
        yield DeployedApp(fleet, clients, dealt, clock, each, words)


class DeployedApp:
    """`regions` are those of the hosts, in their order; each host has `each` machines of the app."""

    def __init__(
        self,
        fleet: LabFleet,
        clients: dict[NodeId, Client],
        regions: Sequence[str],
        clock: Clock,
        each: int = 1,
        words: Callable[[int], dict[str, Any]] = lambda host: {},
    ) -> None:
        self.fleet = fleet
        self._words = words
        self._each = each
        self.clock = clock
        self._clients = clients
        self._regions = regions

    async def stock(self) -> None:
        """Raises `HawkerError` where the fleet does not come to that."""
        await self.patiently(self.everybody_is_here)
        await self.patiently(lambda: self.call(CREATE_APP, body=CreateAppRequest(name=APP), idempotency_key=APP))
        for number, stall in enumerate(self.fleet.stalls):
            metadata = {**PLATFORM, GROUP: "app", PUBLISH: EVERYWHERE, "hawker_labels": f"host={stall.host.number}"}
            service = {"internal_port": 8080, "protocol": "tcp", "ports": [{"port": PORT, "handlers": ["http"]}]}
            config = {"image": IMAGE, "services": [service], "metadata": metadata, "guest": {"memory_mb": 64}}
            config |= self._words(stall.host.number)
            body = msgspec.convert({"config": config, "region": self._regions[number]}, CreateMachineRequest)
            for key in [f"first-{stall.host.number}-{number}" for number in range(self._each)]:
                await self.patiently(partial(self.call, CREATE_MACHINE, params=HERE, body=body, idempotency_key=key))
        await self.patiently(lambda: self.at_rest(0))

    async def again(self, stall: LabNode, failpoint: str | None = None) -> None:
        """Another life of its daemon; its machine goes on."""

        def begin() -> None:
            if stall.daemon.alive:
                stall.daemon.kill()
            stall.daemon.launch(failpoint=failpoint).wait_ready()

        await run_sync(begin)
        await self.patiently(self.everybody_is_here)

    async def mend(self) -> None:
        """So that the next deploy finds a whole fleet."""
        await run_sync(self.fleet.lab.heal)
        for stall in self.fleet.stalls:
            if not stall.host.has_power:
                await run_sync(stall.power_on)
            elif not stall.daemon.alive:
                await run_sync(stall.restart)

    def begin_client(
        self, words: dict[str, Any], strategy: str, label: str, directory: Path
    ) -> "subprocess.Popen[bytes]":
        """`hawker deploy`, once it follows the deploy. Raises `Unavailable` where it is refused."""
        stall = self.fleet.stalls[-1]
        file = directory / "fly.json"
        file.write_bytes(msgspec.json.encode({"app": APP, **words}))
        environment = {**stall.daemon.environment, "HAWKER_URL": stall.url, "HAWKER_TOKEN": self._token}
        command = [*stall.daemon.before_it, HAWKER, "deploy", "-a", APP, "-c", str(file)]
        command += ["--image", IMAGE, "--strategy", strategy, "--label", label]
        client = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert client.stderr is not None
        for line in client.stderr:
            if b"under way" in line and not line.startswith(b"error"):
                return client
        raise Unavailable(f"the client ended with status {client.wait()} before its deploy was under way")

    @property
    def _token(self) -> str:
        return self.fleet.stalls[0].daemon.token

    async def at_rest(self, version: int) -> bool:
        """Every host has its machines, they run, and are of that release."""
        machines = [each for each in await self.machines() if each.state not in GONE]
        settled = all(each.host_status == "ok" and each.state is State.STARTED for each in machines)
        return (
            settled
            and _releases(machines) == {str(version) if version else None}
            and len(machines) == len(self.fleet.stalls) * self._each
        )

    async def machines(self) -> Sequence[Machine]:
        return (await self.call(LIST_MACHINES, params=HERE)).items

    async def everybody_is_here(self) -> bool:
        for node in self._clients:
            nodes = (await self._call_at(node, LIST_NODES)).nodes
            if [each.state for each in nodes] != [Fate.ALIVE] * len(self.fleet.stalls):
                return False
        return True

    def stall(self, node: NodeId) -> LabNode:
        return next(stall for stall in self.fleet.stalls if stall.id == node)

    async def call(self, route: Unary[P, Q, B, R], *, avoid: Collection[NodeId] = (), **options: Any) -> R:
        """At the first broker that can be reached, the last host's first: it is hit least."""
        error: HawkerError = Unavailable("no node can be asked")
        for stall in reversed(self.fleet.stalls):
            if stall.id in avoid or not stall.host.has_power or not stall.daemon.alive:
                continue
            try:
                return await self._call_at(stall.id, route, **options)
            except (Unavailable, DeadlineExceeded) as away:
                error = away
        raise error

    async def _call_at(
        self, node: NodeId, route: Unary[P, Q, B, R], *, timeout_s: float = _CALL_S, **options: Any
    ) -> R:
        return await self._clients[node].call(route, timeout_s=timeout_s, **options)

    async def quietly(self, asked: Awaitable[T]) -> T | None:
        try:
            return await asked
        except HawkerError:
            return None

    async def patiently(self, ask: Callable[[], Awaitable[T | None]]) -> T:
        """Its first answer that is none of None, False. Raises `DeadlineExceeded`, and what no other try can mend."""
        until, why = self.clock.monotonic() + WITHIN_S, ""
        while self.clock.monotonic() < until:
            try:
                if (found := await ask()) is not None and found is not False:
                    return found
            except (TooEarly, BadRequest, Unprocessable):
                raise
            except HawkerError as error:
                why = str(error)
            await self.clock.sleep(LOOK_S)
        raise DeadlineExceeded(f"what the trial waits for was not seen within {WITHIN_S:g} s: {why}")

    # The end.

    async def judged_stores(
        self, accepted: Collection[int], aborted: Collection[int], bad: Collection[int]
    ) -> list[str]:
        """What the nodes have written down of all deploys, once their daemons have ended in order."""
        for stall in self.fleet.stalls:
            if stall.daemon.alive:
                await run_sync(stall.daemon.stop)
        async with AsyncExitStack() as stack:
            readers = {}
            for stall in self.fleet.stalls:
                store = SqliteStore(stall.daemon.place.store)
                stack.push_async_callback(store.close)
                readers[stall.id] = store
            sight = DeploySight(app=APP, readers=readers, running=frozenset())
            home = next((node for node, reader in readers.items() if _is_home(reader)), None)
            if home is None:
                return ["no node is the app's home"]
            return list(map(str, deploys_over(sight, home, accepted, aborted, bad)))


def definition(release: int, *, bad: bool = False, **pace: str) -> dict[str, Any]:
    """What a fly.toml says of that release. `pace` is its `[hawker.deploy]`, a quick one unless told."""
    service = {
        "internal_port": 8080,
        "protocol": "tcp",
        "ports": [{"port": PORT, "handlers": ["http"]}],
        "http_checks": [{"path": "/", "interval": "1s", "timeout": "2s"}],
    }
    found: dict[str, Any] = {
        "env": {"RELEASE": str(release)},
        "services": [service],
        "deploy": {"wait_timeout": "6s" if bad else "30s"},
        "hawker": {"deploy": pace or {"smoke": "2s", "smoke_rest": "1s", "bake": "2s"}},
    }
    if bad:
        found["checks"] = {"never": {"type": "tcp", "port": 9, "interval": "2s", "timeout": "1s", "grace_period": "1s"}}
    return found


def deploy_params(version: int) -> DeployParams:
    return DeployParams(app_name=APP, version=str(version))


def _releases(machines: Sequence[Machine]) -> set[str | None]:
    return {((each.config.env if each.config else None) or {}).get("RELEASE") for each in machines}


def _is_home(reader: SqliteStore) -> bool:
    record = reader.get(APPS, APP)
    return record is not None and record.home is None
