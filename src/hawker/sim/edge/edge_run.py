"""One run of edges in virtual time: three hosts of one region or two, each with an edge, apps whose machines are spread
over them, clients, and whatever fails. Real: the edge, from a client's bytes to the machine's, hops and their TLS
included. Played: the network, the daemons as edges hear them, machines, clients.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from typing import Any, cast

import anyio
from anyio.abc import TaskGroup

from hawker.edge.gates import SOFT_LIMIT
from hawker.feed import GatePlace
from hawker.ids import AppName, MachineId, NodeId
from hawker.machine import State
from hawker.proof.edge_checks import WAKE_S, EdgeLedger, SentRequest
from hawker.proof.violation import Invariant, Violation
from hawker.sim.edge.edge_plan import (
    ALL,
    FAILS_S,
    FORCED,
    OTHER_NUMBER,
    RESTORED_S,
    WELL_S,
    EdgeOperation,
    EdgeOutcome,
    EdgePlan,
    EdgeVerb,
)
from hawker.sim.edge.flow_clients import FlowClients
from hawker.sim.edge.played_apps import (
    DATAGRAM_MACHINES,
    DATAGRAM_PORTS,
    HIDDEN,
    MACHINES,
    NETWORK,
    OTHER_NETWORK,
    PORTS,
    app_records,
    ip_records,
)
from hawker.sim.edge.played_client import PlayedClient, RequestWay, request_of, way_inside
from hawker.sim.edge.played_host import EdgeKit, PlayedHost, left_in
from hawker.sim.edge.played_machine import PlayedMachine
from hawker.sim.edge.wires import CLIENT, HERE, EdgeLoop
from hawker.sim.harness.seeded_run import SeededGame, SeededRun

QUIET_S = 70.0
"""After everything is healed: so long may a request be held, and more than a rest takes."""
SOUND = EdgeKit()
_NOBODY = AppName("")
_ENCLOSED = {"other", HIDDEN, _NOBODY}
"""Nobody else's requests are replayed to them."""
_LOOK_S = 0.5
_REPLAYED = 11  # times at most is a request in a machine that has it replayed without an end
_SLEEPERS = frozenset({"lazy", "herd", "quiet"})
_LOST = 0.3  # of datagrams, while some are
_KNOWN_S = 2.0  # until all hosts know of each other, in the beginning
_GOSSIP_S = 4.0  # until a host that is gone is called down
_ELSEWHERE_S, _ENDED_S = 1.8, 6.0  # after a host is lost: until what may be repeated is, and all else has ended


class EdgeSimulation(SeededRun[EdgePlan, EdgeOutcome]):
    who = "edge"

    def __init__(self, plan: EdgePlan, parts: EdgeKit) -> None:
        super().__init__(plan)
        self._parts = parts
        self._loop = cast(EdgeLoop, asyncio.get_running_loop())
        self._ledger = EdgeLedger(self._clock.monotonic, lambda found: self._note([found]))
        self._ledger.may_reach = lambda app, other: app == other or _ENCLOSED.isdisjoint((app, other))
        self._ledger.region_of = self._region_of
        self._late_s = 0.0
        self._blows: list[float] = []  # when something ended machines or links in the middle of what they did
        self._hindered: list[float] = []  # when something kept machines from being woken, at its beginning and end
        self._asked = 0
        self._hosts: list[PlayedHost] = []
        self._machines: dict[str, PlayedMachine] = {}

    async def play(self) -> EdgeOutcome:
        self._loop.set_exception_handler(self._mistake)
        return await super().play()

    async def _run(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        wires, regions = self._loop.wires, self._plan.regions
        udp_ports = tuple(DATAGRAM_PORTS.values()) if self._plan.datagrams else ()
        machines = MACHINES | (DATAGRAM_MACHINES if self._plan.datagrams else {})
        for number, (processes, region) in enumerate(zip(self._plan.processes, regions, strict=True), 1):
            given = (self._parts, self._spread, self._gate_of, region)
            host = PlayedHost(number, wires, self._ledger, self._clock, tasks, *given)
            host.processes, host.udp_ports = processes, udp_ports
            self._hosts.append(host)
        for number, (name, (place, config)) in enumerate(machines.items(), 1):
            self._make(number, name, self._hosts[place - 1], config)
        self._hosts[0].apps, self._hosts[0].ips = list(app_records()), list(ip_records())
        for host in self._hosts:
            host.private_ips = tuple(each.ip for _, each in self._hosts[0].ips if not each.is_public)
            self._spread(host)
            await host.begin(tuple(PORTS.values()))
            host.begin_daemon()
        told = (self._clock, self._blows, self._hindered, self._may_wake, self._say)
        self._flows = FlowClients(self._hosts, wires, self._ledger.flows, *told)
        await self._clock.sleep(_KNOWN_S)
        tasks.start_soon(self._watch)
        await self._do_all(self._do)
        await self._rest()
        self._judge()
        for host in self._hosts:
            host.end()

    def _make(self, number: int, name: str, host: PlayedHost, config: dict[str, Any]) -> None:
        app = AppName(name[:-1])
        machine = PlayedMachine(
            id=MachineId(f"{number:014x}"),
            app=app,
            node=host.id,
            address=f"10.1.0.{number}",
            public_port=(PORTS | DATAGRAM_PORTS)[app],
            network=OTHER_NETWORK if app == "other" else NETWORK,
            **config,
        )
        host.machines[machine.id] = self._machines[name] = machine
        machine.listen(self._loop.wires, self._ledger)

    def _region_of(self, machine_id: MachineId) -> str:
        return next(each.region for each in self._hosts if machine_id in each.machines)

    def _mistake(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, ConnectionError):
            self._note([Violation(Invariant.ANSWERS, "edge", f"{context['message']}: {type(error).__name__}: {error}")])

    # What other hosts hear.

    def _spread(self, host: PlayedHost) -> None:
        """Later, as the catalog does; whoever is not reached then hears of it once he is."""
        host.catalog.say(host.rows(), [each.catalog for each in self._hosts if each is not host])
        self._tasks.start_soon(self._gossip)

    async def _gossip(self) -> None:
        await self._clock.sleep(0.02 + 0.2 * self._clock.random() + self._late_s)
        there = [each for each in self._hosts if each.daemon and each.powered]
        for host, other in permutations(there, 2):
            if self._loop.wires.reach(host.id, other.id):
                host.catalog.hear(other.id)

    def _gate_of(self, node: NodeId, app: AppName) -> GatePlace | None:
        """Of a host that is lost until that is known."""
        host = next(each for each in self._hosts if each.id == node)
        known = host.powered or self._clock.monotonic() < host.lost_at + _GOSSIP_S
        return host.gate_of(app) if known else None

    # What happens.

    async def _do(self, operation: EdgeOperation) -> None:
        self._say(f"{operation.verb} {operation.label} {operation.amount:g} {operation.word}".rstrip())
        host, machine = self._hosts[int(operation.label) - 1], self._machines.get(operation.word)
        match operation.verb:
            case EdgeVerb.ASK:
                app, method, word, milliseconds, target, *steered = operation.word.split()
                said = "".join(steered)
                for _ in range(int(operation.amount)):
                    self._tasks.start_soon(self._ask, host, app, method, word, int(milliseconds), int(target), said)
            case EdgeVerb.PRIVATE:
                asker, network, named, app, method, word, milliseconds, target = operation.word.split()
                way = way_inside(host, int(asker), int(network), app, named, filtered=self._plan.filtered)
                for _ in range(int(operation.amount)):
                    self._tasks.start_soon(self._ask, host, app, method, word, int(milliseconds), int(target), "", way)
            case EdgeVerb.FLOW:
                app, count, pause_s = operation.word.split()
                for _ in range(int(operation.amount)):
                    self._tasks.start_soon(self._flows.send, host, app, int(count), float(pause_s))
            case EdgeVerb.LOSS:
                self._tasks.start_soon(self._flows.lose_some, operation.amount, _LOST)
            case EdgeVerb.BURST:
                self._tasks.start_soon(self._burst, host, operation.word, int(operation.amount))
            case EdgeVerb.LATE:
                self._tasks.start_soon(self._late, operation.amount)
            case EdgeVerb.REFUSE | EdgeVerb.SLOW:
                self._tasks.start_soon(self._hinder, host, operation.verb, operation.amount)
            case EdgeVerb.LEASE:
                self._tasks.start_soon(self._lease, host, operation.amount)
            case EdgeVerb.DAEMON:
                self._tasks.start_soon(self._without_daemon, host, operation.amount)
            case EdgeVerb.EDGE:
                await self._replace_edge(host, operation.word)
            case EdgeVerb.POWER:
                self._tasks.start_soon(self._without_power, host, operation.amount)
            case EdgeVerb.CUT:
                self._tasks.start_soon(self._cut, host, self._hosts[int(operation.word) - 1], operation.amount)
            case _:
                assert machine is not None, "these are about a machine"
                self._tasks.start_soon(self._change, operation.verb, machine, operation.amount)

    async def _change(self, verb: EdgeVerb, machine: PlayedMachine, amount: float) -> None:
        host = next(each for each in self._hosts if each.id == machine.node)
        if not (host.powered and host.daemon):
            return
        match verb:
            case EdgeVerb.STOP:
                self._blow()
                await host.stop(machine)
                self._blow()
                if machine.least:
                    self._tasks.start_soon(self._restored, machine)
            case EdgeVerb.START:
                await host.start(machine)
            case EdgeVerb.CRASH:
                self._blow()
                await host.crash(machine, 0.01 * amount)
            case EdgeVerb.CORDON:
                self._hinder_from_now()
                machine.cordoned = not machine.cordoned
                host.tell(machine)
            case _:
                machine.healthy = False
                self._hinder_from_now()
                host.tell(machine)
                await self._clock.sleep(amount)
                self._hinder_from_now()
                machine.healthy = True
                host.tell(machine)

    async def _restored(self, stopped: PlayedMachine) -> None:
        """Who rests is started again for one that somebody has stopped, whether anybody asks or not."""
        began, stops = self._clock.monotonic(), len(self._blows)
        machines = [each for each in self._machines.values() if (each.app, each.node) == (stopped.app, stopped.node)]
        resting = any(each.route().rested and not each.cordoned for each in machines)
        await self._clock.sleep(RESTORED_S)
        able = all(each.daemon and each.powered and not each.refuses for each in self._hosts)
        calm = len(self._blows) == stops and not any(at > began for at in self._hindered)
        running = sum(each.up for each in machines)
        if resting and able and calm and running < stopped.least:
            self._note([Violation(Invariant.RESTED, stopped.app, f"{running} run, {stopped.least} are to, some rest")])

    async def _late(self, seconds: float) -> None:
        self._late_s = 3.0
        self._hinder_from_now()
        await self._clock.sleep(seconds)
        self._late_s = 0.0
        self._hinder_from_now()

    async def _hinder(self, host: PlayedHost, verb: EdgeVerb, seconds: float) -> None:
        """The longest refusals are everybody's. Who was to reach another machine may have to wait for it to wake."""
        self._hinder_from_now()
        self._ledger.forgive()
        hosts = self._hosts if seconds > WAKE_S else [host]
        for each in hosts:
            each.refuses = verb is EdgeVerb.REFUSE
            each.fails = each.refuses and seconds == FAILS_S
            each.slow_s = 0.0 if each.refuses else 2.0
        await self._clock.sleep(seconds)
        for each in hosts:
            each.refuses, each.fails, each.slow_s = False, False, 0.0
        self._hinder_from_now()

    async def _lease(self, host: PlayedHost, seconds: float) -> None:
        host.leased = True
        await self._clock.sleep(seconds)
        host.leased = False

    async def _without_daemon(self, host: PlayedHost, seconds: float) -> None:
        if host.powered and host.daemon:
            host.away()
            self._hinder_from_now()
            await self._clock.sleep(seconds)
            self._hinder_from_now()
            if host.powered and not host.daemon:
                host.back()
                await self._gossip()

    async def _replace_edge(self, host: PlayedHost, which: str) -> None:
        if not (host.powered and host.edges):
            return
        self._blow()
        host.end(None if which in (ALL, OTHER_NUMBER) else int(which) % host.processes)
        if which == OTHER_NUMBER:
            host.processes = 3 - host.processes
        await host.begin(tuple(PORTS.values()))

    async def _without_power(self, host: PlayedHost, seconds: float) -> None:
        if not host.powered:
            return
        self._blow()
        self._lose(host, [each for each in self._hosts if each is not host])
        for request in self._ledger.requests.values():
            request.excused = request.excused or (request.edge == host.id and not request.over)
        host.power_off()
        await self._clock.sleep(seconds)
        self._ledger.forgive()
        self._blow()
        await host.power_on(tuple(PORTS.values()))
        await self._gossip()

    async def _cut(self, one: PlayedHost, other: PlayedHost, seconds: float) -> None:
        if one is other:
            return
        self._blow()
        self._lose(one, [other])
        self._lose(other, [one])
        self._loop.wires.cut(one.id, other.id)
        await self._clock.sleep(seconds)
        self._ledger.forgive()
        self._loop.wires.heal()
        self._blow()
        await self._gossip()

    def _blow(self) -> None:
        self._blows.append(self._clock.monotonic())
        self._ledger.flows.disturb()
        self._hinder_from_now()

    def _lose(self, host: PlayedHost, edges: Iterable[PlayedHost]) -> None:
        """From now on these edges hear nothing of the host."""
        quick = []
        for edge in edges:
            for request in self._ledger.asked_of(host.machines, edge.id):
                request.expect_end(self._clock.monotonic() + _ENDED_S)
                once = len(request.reached) == 1 and request.silent and request.may_be_repeated
                if once and request.app == "steady" and edge.ready(request.app):
                    quick.append((request, edge))
        self._tasks.start_soon(self._expect_elsewhere, quick)

    async def _expect_elsewhere(self, requests: Sequence[tuple[SentRequest, PlayedHost]]) -> None:
        """Unless something else has kept them from it, or no machine near them is ready any more."""
        began = self._clock.monotonic()
        await self._clock.sleep(_ELSEWHERE_S)
        if sum(at >= began - WELL_S for at in self._blows) == 1:
            for request, edge in requests:
                ready = edge.ready(request.app)
                if request.waits and len(request.reached) == 1 and ready:
                    request.expect_end(self._clock.monotonic())

    def _hinder_from_now(self) -> None:
        self._hindered.append(self._clock.monotonic())

    # Clients.

    async def _burst(self, host: PlayedHost, app: str, count: int) -> None:
        """All at once, to an app that sleeps: as many machines are woken as they need."""
        machines = [each for each in self._machines.values() if each.app == app]
        alone = all(each.over for each in self._ledger.requests.values() if each.app == app)
        calm = alone and all(each.state in (State.STOPPED, State.SUSPENDED) for each in machines)
        before, asked = sum(each.starts - each.restarts for each in machines), self._asked
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(self._ask, host, app, "GET", "ok", 300, 1)
            if calm and host.powered and not any(each.refuses for each in self._hosts):
                await self._clock.sleep(0.4)
                woken = sum(each.starts - each.restarts for each in machines) - before
                most = -(-count // min(each.soft or SOFT_LIMIT for each in machines))
                if woken > most and self._asked == asked + count:
                    self._note([Violation(Invariant.WOKEN, app, f"{count} at once woke {woken} machines")])

    async def _ask(
        self,
        host: PlayedHost,
        app: str,
        method: str,
        word: str,
        milliseconds: int,
        target: int,
        steered: str = "",
        inside: RequestWay | None = None,
    ) -> None:
        """`steered` is one of `STEERED`, a colon and a region, or empty. `inside`: a machine asks."""
        how, _, region = steered.partition(":")
        way = inside or RequestWay(address=host.address, source=CLIENT, named=HIDDEN if word == "guess" else app)
        self._asked += 1
        began = self._clock.monotonic()
        request = SentRequest(
            id=f"r{self._asked}",
            app=AppName(app) if way.admitted else _NOBODY,
            method=method,
            sent_at=began,
            patience_s=milliseconds / 1000 * (_REPLAYED if word == "loop" else 1) + _ENDED_S,
            edge=host.id,
            plain=word in ("ok", "pieces"),
            silent=word == "ok" and not steered,
            region=region if how == FORCED else "",
            client=way.source,
        )
        self._ledger.sent(request)
        meant = request.region if inside is None else host.region
        near, there = host.ready(app), self._ready_in(meant, app)
        woken = self._may_wake(app)
        client, process, edge_begun = PlayedClient(), 0, None
        path = f"/{request.id}/{milliseconds}/{word}/" + (f"{target:014x}" if word == "machine" else "lazy")
        try:
            if inside is not None:
                HERE.set(host.id)
            port = PORTS[app if inside is None else way.named]
            transport, _ = await self._loop.wires.connect(lambda: client, way.address, port, way.source)
            process = transport.peer.process if transport.peer is not None else 0
            edge_begun = host.begun_at(process)
            transport.write(request_of(method, path, f"{way.named}.test", steered, upgrade=word == "upgrade"))
            status = await client.answer()
            if status == 101:
                await self._clock.sleep(milliseconds / 1000)
                status = 200 if client.open else None
                transport.close()
        except OSError:
            status = None
        request.excused = not host.powered or edge_begun is None or host.begun_at(process) != edge_begun
        ready = bool(near) and near == host.ready(app) and not self._disturbed(began)
        woken = woken and self._may_wake(app) and self._is_calm(began) and client.code != "HQ01"
        served = (ready and app == "steady") or woken
        if steered or inside is not None:  # somebody of the region is ready all the while
            known = not any(at >= began - WELL_S for at in self._hindered)
            served = app in ("steady", "other") and bool(there) and there == self._ready_in(meant, app) and known
            served &= way.admitted
        self._ledger.answered(request.id, status, served=served and request.may_be_repeated and request.plain)
        self._say(f"{request.id} {method} {app}/{word} by {host.id}: {status}")

    def _ready_in(self, region: str, app: str) -> list[tuple[MachineId, int]]:
        """On all hosts of the region; empty for none."""
        return [each for host in self._hosts if host.region == region for each in host.ready(app)]

    def _may_wake(self, app: str) -> bool:
        """Nobody keeps the machines of this app, which sleep, from being woken."""
        machines = [each for each in self._machines.values() if each.app == app]
        willing = all(each.healthy and not each.cordoned for each in machines)
        return (
            app in ("lazy", "herd", "quiet")
            and willing
            and all(each.daemon and not each.refuses for each in self._hosts)
        )

    def _is_calm(self, since: float) -> bool:
        """Nothing has kept anybody from it for some seconds before, nor for as long after."""
        return not any(since - WELL_S <= at <= since + WELL_S for at in self._hindered)

    def _disturbed(self, since: float) -> bool:
        """More than one blow: what is repeated once may meet another one."""
        return sum(at >= since for at in self._blows) > 1

    # The end.

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_S)
            self._note(self._ledger.overdue())
            for host in self._hosts:
                self._ledger.abroad(host.id, host.abroad)

    async def _rest(self) -> None:
        """All is healed and up, and everything has come to its end."""
        self._loop.wires.heal()
        self._hinder_from_now()
        self._late_s = 0.0
        for host in self._hosts:
            host.refuses, host.fails, host.slow_s, host.leased = False, False, 0.0, False
        self._ledger.forgive()
        await self._flows.end()
        await self._clock.sleep(QUIET_S)

    def _judge(self) -> None:
        if self._found:
            return
        for request in self._ledger.requests.values():
            if not request.over:
                self._note([Violation(Invariant.ANSWERED, request.id, "has no answer at the end")])
        for host in self._hosts:
            self._note(left_in(host))
        self._note(self._resting())

    def _resting(self) -> Iterator[Violation]:
        """On each host, for each decides for its own."""
        apps: dict[tuple[str, str], list[PlayedMachine]] = {}
        for machine in self._machines.values():
            if machine.autostop != "off":
                apps.setdefault((machine.app, machine.node), []).append(machine)
        for (app, _), machines in apps.items():
            running = [each.id for each in machines if each.up and each.healthy and not each.cordoned]
            least = max(each.least for each in machines)
            if len(running) > least:
                yield Violation(Invariant.RESTED, app, f"{len(running)} run and nobody asks; {least} are to")
            if len(running) < least and any(each.rested for each in machines):
                by_rest = sum(each.rested for each in machines)
                if len(running) + by_rest >= least and not any(each.cordoned for each in machines):
                    yield Violation(Invariant.RESTED, app, f"{by_rest} rest, {len(running)} run; {least} are to run")

    def _outcome(self, told: dict[str, Any]) -> EdgeOutcome:
        over = [each for each in self._ledger.requests.values() if each.over]
        return EdgeOutcome(
            **told,
            operations=len(over),
            served=sum(each.status == 200 for each in over),
            refused=sum(each.status not in (200, None) for each in over),
            cut=sum(each.status is None for each in over),
            wakes=sum(machine.starts for machine in self._machines.values()),
        )


GAME: SeededGame[EdgeKit, EdgePlan, EdgeOutcome] = SeededGame(sound=SOUND, run=EdgeSimulation, loop=EdgeLoop)
play, shrink = GAME.play, GAME.shrink
