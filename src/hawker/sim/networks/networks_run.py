"""One run of private networks in virtual time: four hosts, each with a broker; apps on networks of which each two come
to one number; machines that start, stop, move and go; host names; and whatever fails. What hosts say to each other of
their records comes late, and of one host in order.
"""

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, cast

from anyio.abc import TaskGroup
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from msgspec.structs import replace

from hawker.api.caller import Caller
from hawker.api.directory import AppIndex, Directory, Node, Peers
from hawker.api.failure import ConnectionLost, Unreachable
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.catalog.contract import Statement
from hawker.errors import HawkerError
from hawker.fleet.app_handlers import AppCounts, PeerAppHandlers
from hawker.gateway.fan_out import FanOut, Reach
from hawker.ids import MachineId, NodeId
from hawker.machine import State
from hawker.proof.network_checks import (
    doubled_ways,
    foreign_answers,
    forms_of,
    left_shown,
    lost_answers,
    shared_numbers,
    shown_secrets,
    wrong_answers,
    wrong_ways,
    wrongly_shown,
)
from hawker.sim.harness.plan import Chance
from hawker.sim.harness.seeded_run import SeededGame, SeededRun
from hawker.sim.networks.network_host import NetworkHost, NetworkParts, flycast_of, issued, prefix_of
from hawker.sim.networks.networks_plan import (
    ASKED,
    HOSTS,
    NetworksOperation,
    NetworksOutcome,
    NetworksPlan,
    NetworksVerb,
)
from hawker.store.memory_store import MemoryStore

SOUND = NetworkParts()
QUIET_S = 12.0
"""After everything is healed and up."""
_LOOK_S, _LATE_S, _GOSSIP_S, _CALL_S = 1.0, 3.0, 4.0, 0.01
_LOST = 0.1
"""Of the answers between nodes: what was asked for is done all the same."""


class PlayedBroker:
    """What a host's broker knows of the fleet, and its way to the keepers; keeps `Directory`, `AppIndex` and `Peers` as
    far as claims ask."""

    def __init__(self, run: "NetworksRun", host: NetworkHost) -> None:
        self._run = run
        self._host = host
        reach = Reach(cast(Directory, self), cast(Peers, self))
        made = run.parts.claims
        self.claims = made(cast(Directory, self), cast(AppIndex, self), FanOut(reach))

    def nodes(self) -> Sequence[Node]:
        return [Node(id=each.id, region="mad", labels={}) for each in self._run.hosts]

    def node(self, node_id: NodeId) -> Node | None:
        return next((each for each in self.nodes() if each.id == node_id), None)

    def network_of(self, org: str, network: str) -> int | None:
        found = [app for app in self._host.known_apps() if (app.org, app.network) == (org, network)]
        return min(found, key=lambda app: (app.created_at, app.name)).network_id if found else None

    def pairs_of(self, number: int) -> Sequence[tuple[str, str]]:
        return [(app.org, app.network) for app in self._host.known_apps() if app.network_id == number]

    def caller(self, node_id: NodeId, *, behalf: str) -> Caller:
        there = next(each for each in self._run.hosts if each.id == node_id)
        return cast(Caller, PlayedCall(self._run, self._host, there))


class PlayedCall:
    """To another node's peer API, over links that are cut and answers that are lost."""

    def __init__(self, run: "NetworksRun", here: NetworkHost, there: NetworkHost) -> None:
        self._run, self._here, self._there = run, here, there

    async def call(self, route: Any, **options: Any) -> Any:
        run, clock = self._run, self._there.clock
        await clock.sleep(_CALL_S * clock.random())
        if not run.reach(self._here, self._there):
            raise Unreachable("it is away")
        handlers = Handlers()
        peers = PeerAppHandlers(
            self._there.id,
            self._there.store,
            clock,
            counts=cast(AppCounts, None),
            enforce=cast(Any, None),
            catalog=None,
            bundler=None,
            members=tuple,
            app_of_hostname=cast(Any, None),
        )
        peers.bind(handlers)
        found = await InProcessCaller(handlers, clock, "broker").call(route, **options)
        await clock.sleep(_CALL_S * clock.random())
        if not run.reach(self._here, self._there) or run.chance.happens(_LOST):
            raise ConnectionLost("the answer is lost")
        return found


class HeardLines(logging.Handler):
    """What the product logs within, with its fields."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[bytes] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(repr(record.__dict__).encode())

    def __enter__(self) -> None:
        logging.getLogger("hawker").addHandler(self)

    def __exit__(self, *raised: object) -> None:
        logging.getLogger("hawker").removeHandler(self)


def secrets_in(key: str) -> frozenset[bytes]:
    """The forms of a private key: of its number, and of the first line of its PEM, which holds some of that."""
    read = load_pem_private_key(key.encode(), None)
    assert isinstance(read, ec.EllipticCurvePrivateKey), "no other is made here"
    number = read.private_numbers().private_value.to_bytes(32, "big")
    return forms_of(number) | forms_of(key.splitlines()[1].encode())


class NetworksRun(SeededRun[NetworksPlan, NetworksOutcome]):
    who = "networks"

    def __init__(self, plan: NetworksPlan, parts: NetworkParts) -> None:
        super().__init__(plan)
        self.parts = parts
        self.chance = Chance(self._clock)
        self._lives: dict[NodeId, bool] = {}
        self._lost_at: dict[NodeId, float] = {}
        self.hosts = [NetworkHost(number, self._clock, parts, self._lives) for number in range(1, HOSTS + 1)]
        self._brokers = [PlayedBroker(self, host) for host in self.hosts]
        self._cuts: set[frozenset[NodeId]] = set()
        self._late_s = 0.0
        self._queues: dict[tuple[NodeId, NodeId], deque[list[Statement]]] = {}
        self._kept: dict[NodeId, MemoryStore] = {}
        self._secrets: set[bytes] = set()  # private keys, in each form
        self._lines = HeardLines()
        self._machines = self._made = self._refused = self._answers = self._shown = 0

    def reach(self, one: NetworkHost, other: NetworkHost) -> bool:
        return one.powered and other.powered and frozenset({one.id, other.id}) not in self._cuts

    async def _run(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        for host in self.hosts:
            host.replica.write(
                [
                    Statement(query="INSERT INTO nodes (node, region) VALUES (?, 'mad')", params=(each.id,))
                    for each in self.hosts
                ]
            )
            self._publish(host)
            for other in self.hosts:
                if other is not host:
                    tasks.start_soon(self._deliver, host, other)
        tasks.start_soon(self._look)
        with self._lines:
            await self._do_all(self._do)
            await self._rest()
            self._judge()

    # What hosts hear of each other.

    def _publish(self, host: NetworkHost) -> None:
        news = host.news()
        host.tell()
        for other in self.hosts:
            if other is not host and news:
                self._queues.setdefault((host.id, other.id), deque()).append(news)

    async def _deliver(self, host: NetworkHost, other: NetworkHost) -> None:
        queue = self._queues.setdefault((host.id, other.id), deque())
        while True:
            await self._clock.sleep(0.02 + 0.3 * self._clock.random() + self._late_s * self._clock.random())
            while queue and self.reach(host, other):
                other.replica.write(queue.popleft())

    async def _look(self) -> None:
        """One host after the other: of two threads at a time the first would be anybody's guess."""
        while True:
            for host in self.hosts:
                if host.powered:
                    networks = host.networks
                    await host.look()
                    self._note(self._seen(host, networks))
            await self._clock.sleep(_LOOK_S)

    # What happens.

    async def _do(self, operation: NetworksOperation) -> None:
        self._say(f"{operation.verb} {operation.label} {operation.amount:g} {operation.word}".rstrip())
        host, word = self.hosts[int(operation.label) - 1], operation.word
        match operation.verb:
            case NetworksVerb.APP:
                name, org, network = word.split()
                self._tasks.start_soon(self._make_app, host, name, org, network)
            case NetworksVerb.POWER:
                self._tasks.start_soon(self._without_power, host, operation.amount)
            case NetworksVerb.CUT:
                self._tasks.start_soon(self._cut, host, self.hosts[int(word) - 1], operation.amount)
            case NetworksVerb.LATE:
                self._tasks.start_soon(self._late, operation.amount)
            case NetworksVerb.NEXT_HOME:
                await self._next_home(host, int(word), operation.amount)
            case NetworksVerb.RESTORE:
                await self._restore(host)
            case NetworksVerb.CERTIFICATE:
                hostname, app = word.split()
                await self._certify(hostname, app, operation.amount)
            case NetworksVerb.REMOVE:
                await self._remove(word)
            case NetworksVerb.MACHINE:
                await self._make_machine(host, word)
            case _:
                await self._change(operation.verb, host, int(word))

    async def _make_app(self, host: NetworkHost, name: str, org: str, network: str) -> None:
        """Its broker is another host's."""
        broker = self._brokers[self.hosts.index(host) - 1]
        there = any(app.name == name for each in self.hosts for app in each.apps)
        if there or not (host.powered and broker._host.powered):  # names have claims of their own
            return
        try:
            await broker.claims.settle(org, network, host.id, "client")
            if any(app.name == name for each in self.hosts for app in each.apps):
                return
            made = await host.make_app(name, org, network)
        except HawkerError as error:
            self._refused += 1
            self._say(f"app {name} is not made: {error}")
            return
        self._made += 1
        self._say(f"app {name} of {org}/{network} is in {made.network_id:08x}")
        self._publish(host)
        self._note(shared_numbers(app for each in self.hosts for app in each.apps))

    async def _make_machine(self, host: NetworkHost, app: str) -> None:
        home = next(
            (each for each in self.hosts for record in each.apps if record.name == app and not record.home), None
        )
        if home is None or not self.reach(home, host):
            return
        record = next(each for each in home.apps if each.name == app)
        if all(each.name != app for each in host.apps):
            await host.carry(record, home.id)
        self._machines += 1
        await host.make_machine(MachineId(f"{self._machines:014x}"), record)
        self._publish(host)

    async def _change(self, verb: NetworksVerb, to: NetworkHost, which: int) -> None:
        there = [(host, machine) for host in self.hosts if host.powered for machine in host.machines]
        if not there:
            return
        host, machine = there[which % len(there)]
        match verb:
            case NetworksVerb.STOP | NetworksVerb.START:
                state = State.STOPPED if verb is NetworksVerb.STOP else State.STARTED
                await host.put(replace(machine, state=state, updated_at=self._clock.now()))
            case NetworksVerb.DESTROY:
                await host.drop(machine.id)
            case _:
                if to is host or not self.reach(host, to):
                    return
                record = next(each for each in host.apps if each.name == machine.app)
                if all(each.name != machine.app for each in to.apps):
                    await to.carry(record, record.home or host.id)
                await to.put(replace(machine, generation=machine.generation + 1, updated_at=self._clock.now()))
                await host.drop(machine.id)
                self._publish(to)
        self._publish(host)

    async def _certify(self, hostname: str, app: str, seconds: float) -> None:
        home = self._home(app)
        if home is not None and home.powered:
            try:
                chain, key = issued(hostname, self._clock.now(), seconds)
                self._secrets |= secrets_in(key)
                await home.certificates.put(app, hostname, chain, key)
            except HawkerError as error:
                self._say(f"{hostname} is not {app}'s: {error}")
            self._publish(home)
            self._note(self._in_clear())

    async def _remove(self, hostname: str) -> None:
        for host in self.hosts:
            for record in list(host.certificates.all()):
                if record.hostname == hostname and host.powered:
                    await host.certificates.delete(record.app, hostname)
                    self._publish(host)

    async def _next_home(self, host: NetworkHost, which: int, seconds: float) -> None:
        """Of an app with a host name, whose home loses its power first."""
        there = [(each, record) for each in self.hosts if each is not host for record in each.certificates.all()]
        if not there or not host.powered:
            return
        home, record = there[which % len(there)]
        self._tasks.start_soon(self._without_power, home, 2 * _GOSSIP_S)
        app = next((each for each in home.apps if each.name == record.app), None)
        if app is None or self._home(app.name) is not home:
            return
        await host.carry(app, host.id, app.reign + 1)
        self._publish(host)
        await self._certify(record.hostname, app.name, seconds)

    def _home(self, app: str) -> NetworkHost | None:
        """Of several the one of the latest reign."""
        homes = [(record.reign, number) for number, each in enumerate(self.hosts) for record in each.apps
                 if record.name == app and record.home is None]  # fmt: skip
        return self.hosts[max(homes)[1]] if homes else None

    async def _restore(self, host: NetworkHost) -> None:
        """From the copy of its store that was made the time before; what has moved away since is given up."""
        if not host.powered:
            return
        before = self._kept.pop(host.id, None)
        copy = host.store.crash() if before is None else before
        host.store = copy.crash()
        host.begin()
        if before is None:
            self._kept[host.id] = copy
            return
        elsewhere = {machine.id for each in self.hosts if each is not host for machine in each.machines}
        for machine in host.machines:
            if machine.id in elsewhere:
                await host.drop(machine.id)
        for app in host.apps:
            home = self._home(app.name)
            if app.home is None and home is not None and home is not host:
                await host.carry(app, home.id)
        self._publish(host)

    async def _without_power(self, host: NetworkHost, seconds: float) -> None:
        if not host.powered or sum(not each.powered for each in self.hosts) > 1:
            return
        host.powered = False
        await self._clock.sleep(min(seconds, _GOSSIP_S))
        self._lives[host.id], self._lost_at[host.id] = False, self._clock.monotonic()
        await self._clock.sleep(seconds)
        host.powered, self._lives[host.id] = True, True
        del self._lost_at[host.id]
        host.begin()
        self._publish(host)

    async def _cut(self, one: NetworkHost, other: NetworkHost, seconds: float) -> None:
        cut = frozenset({one.id, other.id})
        if one is not other:
            self._cuts.add(cut)
            await self._clock.sleep(seconds)
            self._cuts.discard(cut)

    async def _late(self, seconds: float) -> None:
        self._late_s = _LATE_S
        await self._clock.sleep(seconds)
        self._late_s = 0.0

    # What is judged.

    def _ask(self, host: NetworkHost, name: str, network: int) -> list[str]:
        self._answers += 1
        said = host.answer(name, network)
        assert said is not None, "no question about a private name leaves the host"
        return said

    def _seen(self, host: NetworkHost, networks: Set[int]) -> Iterator[Any]:
        """Whatever is late: no word of another network, no address at two hosts, no wrong certificate. `networks` are
        those of which it has just read."""
        numbers = sorted({app.network_id for each in self.hosts for app in each.apps})
        apps = sorted({app.name for each in self.hosts for app in each.apps})
        for suffix in ("internal", "flycast") if apps else ():
            asked = f"{self.chance.one_of(apps)}.{suffix}"
            lost = self._lost_for(host)
            for network in numbers:
                said = self._ask(host, asked, network)
                yield from foreign_answers(network, asked, said)
                yield from lost_answers(asked, said, lost if network in networks else ())
        yield from doubled_ways(host.id, host.allowed)
        yield from self._shown_at(host)

    def _in_clear(self) -> Iterator[Any]:
        """Private keys, where they can be read: at hosts, in their backups, in the log."""
        for host in self.hosts:
            kept = self._kept.get(host.id)
            backup = () if kept is None else kept.encoded()
            places = [*host.readable(), *((f"a backup's bucket {name}", value) for name, value in backup)]
            yield from shown_secrets(host.id, places, self._secrets)
        yield from shown_secrets("all hosts", (("the log", line) for line in self._lines.heard), self._secrets)

    def _lost_for(self, host: NetworkHost) -> set[str]:
        """The addresses of machines that by all that this host has read are at hosts that it knows to be lost."""
        since = self._clock.monotonic() - 2 * _LOOK_S
        rows = host.replica.rows("SELECT min(node), min(private_ip) FROM machines GROUP BY id HAVING count(*) = 1")
        return {str(ip) for node, ip in rows if self._lost_at.get(NodeId(str(node)), since + 1) <= since}

    def _shown_at(self, host: NetworkHost) -> Iterator[Any]:
        for asked in ASKED:
            shown = host.book.find(asked)
            if shown is not None:
                self._shown += 1
                yield from wrongly_shown(host.id, asked, shown, host.names_in(shown), host.sealed(), self._clock.now())

    async def _rest(self) -> None:
        """All is healed and up, and has been told."""
        for _ in range(30):  # who is without power comes back
            if all(host.powered for host in self.hosts):
                break
            await self._clock.sleep(1.0)
        self._cuts.clear()
        self._late_s = 0.0
        await self._clock.sleep(QUIET_S)

    def _judge(self) -> None:
        if self._found:
            return
        self._note(shared_numbers(app for each in self.hosts for app in each.apps))
        self._note(self._in_clear())
        records = [record for host in self.hosts for record in host.certificates.all()]
        for host in self.hosts:
            self._note(self._judge_names(host))
            self._note(wrong_ways(host.id, _way_of(host), self._ways_for(host)))
            for asked in ASKED:
                self._note(left_shown(host.id, asked, host.book.find(asked), records, self._clock.now()))

    def _judge_names(self, host: NetworkHost) -> Iterator[Any]:
        """Of the networks that have machines there."""
        for app in {app.name: app for each in self.hosts for app in each.apps}.values():
            if app.network_id in host.networks:
                machines = [machine for each in self.hosts for machine in each.machines if machine.app == app.name]
                started = [each.network.private_ip for each in machines if each.state is State.STARTED]
                asked = f"{app.name}.internal"
                yield from wrong_answers(asked, self._ask(host, asked, app.network_id), started)
                flycast = self._ask(host, f"{app.name}.flycast", app.network_id)
                yield from wrong_answers(f"{app.name}.flycast", flycast, [flycast_of(app.network_id, app.name)])

    def _ways_for(self, host: NetworkHost) -> Mapping[str, str]:
        others = [each for each in self.hosts if each is not host]
        return {
            prefix_of(machine): other.me.key
            for other in others
            for machine in other.machines
            if machine.network.network_id in host.networks
        }

    def _outcome(self, told: dict[str, Any]) -> NetworksOutcome:
        return NetworksOutcome(
            **told,
            operations=self._made + self._refused,
            apps=self._made,
            refused=self._refused,
            answers=self._answers,
            shown=self._shown,
        )


def _way_of(host: NetworkHost) -> Mapping[str, str]:
    return {address: key for key, allowed in host.allowed.items() for address in allowed}


GAME: SeededGame[NetworkParts, NetworksPlan, NetworksOutcome] = SeededGame(sound=SOUND, run=NetworksRun)
play, shrink = GAME.play, GAME.shrink
