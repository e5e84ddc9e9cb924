"""Looks after deploys of which this node is a voter: begins the run of one whose coordinator is down, tells the other
voters of one that ended here, and forgets those that ended a while ago.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from hawker.api.contract.deploy import RegisterAnswer
from hawker.clock import Clock
from hawker.deploys.coordinator import CoordinatingNodes, Coordinator, DeployState, Voters, opened_state, put_state
from hawker.deploys.deploy_table import DeployTable
from hawker.deploys.flows import DEPLOY, DEPLOY_BACK, DeployInput
from hawker.deploys.releases import ReleaseStatus
from hawker.errors import HawkerError
from hawker.fsm import journal
from hawker.fsm.contract import WhenBusy
from hawker.fsm.runner import Runner
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
from hawker.store.contract import Tx

LOOK_S = 1.0
NEXT_S = 10.0
"""After so long the next voter takes over, since the first one that lives may not have heard of the deploy."""
_ENDED_S = 3600.0
_FORGET_S = 60.0
_LEFT_S = 40 * 86_400.0
_log = bind("hawker.deploys")


class DeployWatch:
    """One task of a node in a fleet."""

    def __init__(
        self, table: DeployTable, nodes: Callable[[], CoordinatingNodes], clock: Clock, runner: Runner[Any]
    ) -> None:
        self._table = table
        self._store = table.store
        self._nodes = nodes
        self._clock = clock
        self._runner = runner
        self._down: dict[str, float] = {}
        self._next = 0.0

    async def serve(self) -> None:
        """Until cancelled."""
        said = ""
        while True:
            try:
                await self.look()
                said = ""
            except HawkerError as error:
                if str(error) != said:
                    said = str(error)
                    _log.warning("cannot look at deploys", extra={"error": said})
            await self._clock.sleep(LOOK_S)

    async def look(self) -> None:
        """Once at everything."""
        await self._forget()
        for key, register in list(self._store.scan(DEPLOY_REGISTERS)):
            if register.ended or not register.term:
                continue
            local = self._store.get(DEPLOYS, deploy_key(register.app, register.version))
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

        def apply(tx: Tx) -> None:
            if _is_older(tx, state):
                put_state(tx, state, nodes)
            flow = DEPLOY_BACK if back else DEPLOY
            self._runner.accept(tx, flow, deploy_resource(register.app), given, when_busy=WhenBusy.REFUSE)

        await self._store.write(apply)
        self._down.pop(key, None)
        said = {"app": register.app, "deploy": register.version, "lost": register.holder}
        _log.warning("deploy is taken over", extra=said)

    async def _tell(self, key: str, register: RegisterRecord, local: DeployRecord) -> None:
        """It ended here, and this voter has not heard of it, or no majority has."""
        newest = await self._newest(key, register)
        if newest.ended:
            await self._end(key)
        elif newest.holder == self._nodes().me:
            await Coordinator(register.app, register.version, self._table, self._nodes, self._clock).take()

    async def _newest(self, key: str, register: RegisterRecord) -> RegisterAnswer:
        """Raises `Unavailable`."""
        app_id = key.partition("/")[0]
        voters = Voters(register.app, app_id, register.version, register.voters, self._nodes(), self._clock)
        return max(await voters.read(), key=lambda each: (each.term, each.number))

    async def _end(self, key: str) -> None:
        def apply(tx: Tx) -> None:
            there = tx.get(DEPLOY_REGISTERS, key)
            if there is not None:
                tx.put(DEPLOY_REGISTERS, key, replace(there, ended=True, at=self._clock.now()))

        await self._store.write(apply)

    async def _forget(self) -> None:
        now = self._clock.now()
        if now < self._next:
            return
        self._next = now + _FORGET_S
        old = [
            key
            for key, each in self._store.scan(DEPLOY_REGISTERS)
            if now - each.at > (_ENDED_S if each.ended else _LEFT_S) and each.at
        ]
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


def _is_older(tx: Tx, state: DeployState) -> bool:
    """What is here of it, if anything."""
    there = tx.get(DEPLOYS, deploy_key(state.app.name, state.deploy.version))
    return there is None or (there.term, there.serial) < (state.deploy.term, state.deploy.serial)
