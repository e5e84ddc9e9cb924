"""Looks after deploys of which this node is a voter: begins the run of one whose coordinator is down, tells the other
voters of one that ended here, asks them of one that may have, and forgets those that ended a while ago once each of
them knows it. Where no majority of the voters is left, an operator has one that lives go on.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
from msgspec.structs import replace

from hawker.api.contract.deploy import TAKE_DEPLOY, DeployInfo, DeployParams, RegisterAnswer
from hawker.api.handlers import answers
from hawker.api.route import Call, NoQuery
from hawker.clock import Clock
from hawker.deploys.coordinator import Coordinator, DeployState, opened_state, put_state
from hawker.deploys.deploy_handlers import view
from hawker.deploys.deploy_table import DeployTable
from hawker.deploys.flows import DEPLOY, DEPLOY_BACK, DeployInput
from hawker.deploys.register import TERM_S, answer_of
from hawker.deploys.releases import ReleaseStatus, found
from hawker.deploys.voters import CoordinatingNodes, TermLost, Voters, taken_voters
from hawker.errors import HawkerError, NotFound, Unavailable, WrongState
from hawker.fsm import journal
from hawker.fsm.contract import WhenBusy
from hawker.fsm.runner import Runner
from hawker.ids import AppName, NodeId
from hawker.log import bind
from hawker.record.app import APPS
from hawker.record.deploy import (
    DEPLOY_REGISTERS,
    DEPLOY_TERMS,
    DEPLOYS,
    DeployRecord,
    RegisterRecord,
    deploy_key,
    deploy_resource,
)
from hawker.store.contract import Reader, Tx, keys_of

LOOK_S = 1.0
NEXT_S = 10.0
"""The seconds after which the next voter takes over, since the first one that lives may not have heard of the
deploy."""
_ENDED_S = 3600.0
_FORGET_S = 60.0
_LEFT_S = 40 * 86_400.0
_GRANTS_S = 5.0
_LATEST = "latest"
_AT_ONCE = 16
_ONE_S = 30.0
"""The most seconds of one look at one register."""
TAKEN = 1 << 20
"""The number by which the term that an operator takes is greater: those who are lost grant none as great, should they
live."""
_log = bind("hawker.deploys")


class DeployWatch:
    """The task of a node in a fleet that takes over deploys of lost coordinators."""

    def __init__(
        self, table: DeployTable, nodes: Callable[[], CoordinatingNodes], clock: Clock, runner: Runner[Any]
    ) -> None:
        self._table = table
        self._store = table.store
        self._nodes = nodes
        self._clock = clock
        self._runner = runner
        self._down: dict[str, float] = {}
        self._said: dict[str, str] = {}
        self._over: set[str] = set()  # registers that ended, as it is known here: nothing changes them any more

    async def serve(self) -> None:
        """Looks and forgets again and again, until cancelled. What forgets asks others, and no takeover waits for
        those."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._now_and_then, self.forget, _FORGET_S)
            tasks.start_soon(self._now_and_then, self.look, LOOK_S)

    async def _now_and_then(self, do: Callable[[], Awaitable[None]], every_s: float) -> None:
        said = ""
        while True:
            try:
                await do()
                said = ""
            except HawkerError as error:
                if str(error) != said:
                    said = str(error)
                    _log.warning("cannot look at deploys", extra={"error": said})
            await self._clock.sleep(every_s)

    async def look(self) -> None:
        """Looks once at every register that is kept here, several at a time. One that cannot be looked at, or not soon,
        keeps no other from it."""
        found = list(keys_of(self._store, DEPLOY_REGISTERS))
        self._over.intersection_update(found)
        for known in (self._said, self._down):
            for key in known.keys() - found:
                del known[key]
        left = [key for key in found if key not in self._over]

        async def one_after_another() -> None:
            while left:
                key = left.pop(0)
                register = self._store.get(DEPLOY_REGISTERS, key)
                if register is not None:
                    await self._bounded(key, register)
                await self._clock.sleep(0)

        async with anyio.create_task_group() as tasks:
            for _ in left[:_AT_ONCE]:
                tasks.start_soon(one_after_another)

    async def _bounded(self, key: str, register: RegisterRecord) -> None:
        """Says once why it cannot be looked at."""
        why = f"it takes more than {_ONE_S:g} s"
        with anyio.move_on_after(_ONE_S):
            try:
                await self._look_at(key, register)
                why = ""
            except TermLost:
                why = "another node coordinates it"
            except HawkerError as error:
                why = str(error)
        if why and self._said.get(key) != why:
            said = {"app": register.app, "deploy": register.version, "error": why}
            _log.warning("cannot look at a deploy", extra=said)
        if why:
            self._said[key] = why
        else:
            self._said.pop(key, None)

    async def _look_at(self, key: str, register: RegisterRecord) -> None:
        app = self._store.get(APPS, register.app)
        if app is not None and app.id != _app_id(key):
            if register.ended:
                self._over.add(key)
            elif app.home is None:  # elsewhere what is known of the app may be old
                await self._end(key)
            return
        if register.ended:
            await self._heed(key, answer_of(register), register)
            return
        if not register.term:
            return
        local = _local(self._store, key, register)
        if local is not None and local.ended_at is not None and local.voters:
            await self._tell(key, register, local)
        elif journal.active(self._store, deploy_resource(register.app)) is None and self._is_due(key, register):
            await self._begin(key, register)

    def _is_due(self, key: str, register: RegisterRecord) -> bool:
        """Whether its coordinator is down, and it is this voter's turn."""
        nodes = self._nodes()
        alive = {node.id for node in nodes.nodes() if node.alive}
        if register.holder in alive or nodes.me not in register.voters:
            self._down.pop(key, None)
            return False
        since = self._down.setdefault(key, self._clock.monotonic())
        turn = [voter for voter in register.voters if voter in alive or voter == nodes.me].index(nodes.me)
        return self._clock.monotonic() - since >= turn * NEXT_S

    async def _begin(self, key: str, register: RegisterRecord) -> None:
        """The run goes on from what a majority has."""
        nodes = self._nodes()
        newest = await self._newest(key, register)
        if newest.ended or not nodes.nodes_of_app(register.app):
            await self._end(key)
            return
        state = opened_state(newest.state, nodes)
        back = state.release.status == ReleaseStatus.ROLLING_BACK
        given = DeployInput(app=register.app, version=register.version, why=state.deploy.error)

        def apply(tx: Tx) -> bool:
            if _is_another(tx, register.app, _app_id(key)):
                return False
            if _is_older(tx, state):
                put_state(tx, state, nodes)
            flow = DEPLOY_BACK if back else DEPLOY
            self._runner.accept(tx, flow, deploy_resource(register.app), given, when_busy=WhenBusy.REFUSE)
            return True

        if not await self._store.write(apply):
            return
        self._down.pop(key, None)
        said = {"app": register.app, "deploy": register.version, "lost": register.holder}
        _log.warning("deploy is taken over", extra=said)

    async def _tell(self, key: str, register: RegisterRecord, local: DeployRecord) -> None:
        """It ended here, and this voter has not heard of it, or no majority has."""
        newest = await self._newest(key, register)
        if newest.ended:
            await self._heed(key, newest, register)
        elif newest.holder == self._nodes().me:
            await Coordinator(register.app, register.version, self._table, self._nodes, self._clock).take()

    async def _heed(self, key: str, newest: RegisterAnswer, register: RegisterRecord) -> None:
        """How it ended counts, where it ended otherwise here, with fewer words of its voters."""
        local = _local(self._store, key, register)
        if local is None or (newest.term, newest.number) <= (local.term, local.serial):
            if register.ended:
                self._over.add(key)
            else:
                await self._end(key)
            return
        if journal.active(self._store, deploy_resource(register.app)) is not None:
            return  # it reads the end by itself
        nodes = self._nodes()
        state = opened_state(newest.state, nodes)

        def apply(tx: Tx) -> None:
            if _local(tx, key, register) is not None and _is_older(tx, state):  # none once the app is destroyed
                put_state(tx, state, nodes)

        await self._store.write(apply)
        await self._end(key)

    async def _newest(self, key: str, register: RegisterRecord) -> RegisterAnswer:
        """Raises `Unavailable`."""
        return max(await self._voters(key, register).read(), key=lambda each: (each.term, each.number))

    def _voters(self, key: str, register: RegisterRecord) -> Voters:
        return Voters(register.app, _app_id(key), register.version, register.voters, self._nodes(), self._clock)

    async def _learn(self) -> None:
        """What ended while this node was away, and whose coordinator lives, so that nobody here would ask. Where there
        is a record of it here, a run follows that reads how it ended."""
        for key in list(keys_of(self._store, DEPLOY_REGISTERS)):
            register = None if key in self._over else self._store.get(DEPLOY_REGISTERS, key)
            if register is None or register.ended or _local(self._store, key, register) is not None:
                continue
            with suppress(Unavailable):
                if (await self._newest(key, register)).ended:
                    await self._end(key)

    async def _is_known(self, key: str, register: RegisterRecord) -> bool:
        """Whether each other voter has heard of the end, or keeps nothing of the deploy any more. One that is away
        would go on with it, once it is back and finds no end; one that was forgotten does not come back."""
        known = {node.id: node.alive for node in self._nodes().nodes()}
        others = [node for node in register.voters if node in known and node != self._nodes().me]
        if not all(known[node] for node in others):
            return False
        heard = await self._voters(key, register).heard()
        return all(node in heard and (heard[node].ended or not heard[node].granted) for node in others)

    async def _end(self, key: str) -> None:
        def apply(tx: Tx) -> None:
            there = tx.get(DEPLOY_REGISTERS, key)
            if there is not None:
                tx.put(DEPLOY_REGISTERS, key, replace(there, ended=True, at=self._clock.now()))

        await self._store.write(apply)

    async def forget(self) -> None:
        """Deletes registers of deploys that ended a while ago, once each voter knows that; those that were left long
        ago; and terms of apps that are gone."""
        await self._learn()
        now, old = self._clock.now(), list[str]()
        for key in list(keys_of(self._store, DEPLOY_REGISTERS)):
            await self._clock.sleep(0)
            each = self._store.get(DEPLOY_REGISTERS, key)
            if each is None:
                continue
            age_s = now - each.at if each.at else 0.0
            if age_s > _LEFT_S or (each.ended and age_s > _ENDED_S and await self._is_known(key, each)):
                old.append(key)
        known = {record.id for _, record in self._store.scan(APPS)}
        gone = [key for key, _ in self._store.scan(DEPLOY_TERMS) if key not in known]
        if not old and not gone:
            return

        def apply(tx: Tx) -> None:
            for key in old:
                tx.delete(DEPLOY_REGISTERS, key)
            for key in gone:
                tx.delete(DEPLOY_TERMS, key)

        await self._store.write(apply)


class TakeHandlers:
    """An operator's word: voters of a deploy are lost for good, and it goes on here with others."""

    def __init__(
        self, table: DeployTable, nodes: Callable[[], CoordinatingNodes], clock: Clock, runner: Runner[Any]
    ) -> None:
        self._table = table
        self._nodes = nodes
        self._clock = clock
        self._runner = runner

    @answers(TAKE_DEPLOY)
    async def take(self, call: Call[DeployParams, NoQuery, None]) -> DeployInfo:
        key, register = self._register(call.params)
        app, version, nodes = register.app, register.version, self._nodes()
        app_id = _app_id(key)
        voters = Voters(app, app_id, version, register.voters, nodes, self._clock)
        heard = await voters.heard()
        newest = max(heard.values(), key=lambda each: (each.term, each.number), default=answer_of(register))
        if register.ended or newest.ended:
            raise WrongState(f"deploy {version} of app '{app}' has ended")
        if len(heard) >= voters.majority:
            raise WrongState(
                f"{len(heard)} of the {len(voters.all)} nodes that keep deploy {version} of app '{app}' answer: it goes"
                " on by itself"
            )
        lost = [node for node in voters.all if node not in heard]
        chosen = taken_voters(app_id, version, nodes, heard, lost)
        term = max([register.granted, *(each.granted for each in heard.values())]) + TAKEN
        await self._granted(replace(voters, all=chosen), term)
        await self._go_on(app, version, newest, term, chosen)
        said = {"app": app, "deploy": version, "voters": ", ".join(chosen), "lost": ", ".join(lost)}
        _log.warning("deploy is taken by an operator", extra=said)
        await Coordinator(app, version, self._table, self._nodes, self._clock).keep_now()
        with self._table.store.snapshot() as reader:
            release = found(reader, app, version)
            return view(app, release, self._table.find(reader, app, version), self._table.slots(reader, app, version))

    def _register(self, params: DeployParams) -> tuple[str, RegisterRecord]:
        """Of the newest such deploy that this node keeps. Raises `NotFound`."""
        store, app = self._table.store, params.app_name
        kept = [pair for pair in store.scan(DEPLOY_REGISTERS) if pair[1].app == app]
        kept = [pair for pair in kept if not _is_another(store, app, _app_id(pair[0]))]
        kept = [pair for pair in kept if params.version in (_LATEST, str(pair[1].version)) and pair[1].state]
        if not kept:
            raise NotFound(f"no such deploy of app '{app:.80}' is kept here")
        return max(kept, key=lambda pair: pair[1].version)

    async def _granted(self, voters: Voters, term: int) -> None:
        """Returns once most of them have granted it, which those that granted another one do when that is over. Raises
        `Unavailable`."""
        deadline = self._clock.monotonic() + TERM_S + _GRANTS_S
        while True:
            answers = await voters.grant(term)
            if sum((each.granted, each.holder) == (term, voters.nodes.me) for each in answers) >= voters.majority:
                return
            if self._clock.monotonic() >= deadline:
                raise Unavailable(
                    f"the nodes {', '.join(voters.all)} do not let this node continue the deploy: try another node"
                )
            await self._clock.sleep(LOOK_S)

    async def _go_on(
        self, app: AppName, version: int, newest: RegisterAnswer, term: int, voters: tuple[NodeId, ...]
    ) -> None:
        """From what is here, or from the newest that was heard; in a run of this node."""
        nodes, state = self._nodes(), opened_state(newest.state, self._nodes())

        def apply(tx: Tx) -> None:
            if _is_another(tx, app, state.app.id):
                raise NotFound("app not found")
            if _is_older(tx, state):
                put_state(tx, state, nodes)
            self._table.change(tx, app, version, voters=voters, term=term, coordinator=nodes.me)
            if journal.active(tx, deploy_resource(app)) is None:
                back = found(tx, app, version).status == ReleaseStatus.ROLLING_BACK
                given = DeployInput(app=app, version=version, why=state.deploy.error)
                flow = DEPLOY_BACK if back else DEPLOY
                self._runner.accept(tx, flow, deploy_resource(app), given, when_busy=WhenBusy.REFUSE)

        await self._table.store.write(apply)


def _app_id(key: str) -> str:
    """Of the app whose deploy a register with this key keeps."""
    return key.partition("/")[0]


def _is_another(reader: Reader, name: str, app_id: str) -> bool:
    """Whether the app that has the name here is a later one, since that with this id was destroyed. Where there is no
    app of the name, this node may never have had it."""
    there = reader.get(APPS, name)
    return there is not None and there.id != app_id


def _local(reader: Reader, key: str, register: RegisterRecord) -> DeployRecord | None:
    """What is here of a register's deploy, if anything; not what is of a later app of the name."""
    if _is_another(reader, register.app, _app_id(key)):
        return None
    return reader.get(DEPLOYS, deploy_key(register.app, register.version))


def _is_older(tx: Tx, state: DeployState) -> bool:
    """What is here of it, if anything."""
    there = tx.get(DEPLOYS, deploy_key(state.app.name, state.deploy.version))
    return there is None or (there.term, there.serial) < (state.deploy.term, state.deploy.serial)
