"""Who looks on while deploys are played: each change that a coordinator sends and a node makes is told to the ledger,
with what a majority of the deploy's voters has at that moment.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hawker.api.contract.deploy import ANNOUNCE_TERM
from hawker.api.contract.machine import CREATE_MACHINE, DELETE_MACHINE, UPDATE_MACHINE
from hawker.api.route import Call
from hawker.deploys.coordinator import opened_state
from hawker.deploys.plan import is_of
from hawker.ids import NodeId
from hawker.proof.deploy_ledger import DeployLedger, KeptDeploy, SentChange, surely_kept
from hawker.proof.violation import Violation
from hawker.record.app import APPS
from hawker.record.deploy import DEPLOY_REGISTERS, DEPLOY_SLOTS, DEPLOY_TERMS, DEPLOYS, deploy_key
from hawker.sim.deploys.deploy_host import DeployFleet, DeployHost, DeployNodes
from hawker.sim.node.sim_worker import APP


class DeployWitness:
    """Of the fleet's one app, whose home is the first host."""

    def __init__(
        self,
        fleet: DeployFleet,
        hosts: Mapping[NodeId, DeployHost],
        note: Callable[[Iterable[Violation]], None],
    ) -> None:
        self._fleet = fleet
        self._hosts = hosts
        self.ledger = DeployLedger(note, self._kept, APP)
        fleet.watches.sends, fleet.watches.comes = self.sent, self.comes

    def sent(self, node: NodeId, route: Any, options: dict[str, Any]) -> None:
        host, machine, slot = self._hosts[node], "", None
        if route is CREATE_MACHINE:
            _, version, number, _ = options["idempotency_key"].split("-", 3)
            slot = int(number) if number.isdecimal() else None
        elif route is ANNOUNCE_TERM:
            version = options["params"].version
        else:
            version, machine = options["deploy_term"].partition("/")[0], options["params"].machine_id
        record = host.world.store.get(DEPLOYS, deploy_key(APP, int(version)))
        if record is None or not record.is_replicated or host.worker is None:
            return
        if machine:
            slots = host.world.store.scan(DEPLOY_SLOTS, f"{deploy_key(APP, int(version))}/")
            slot = next((each.number for _, each in slots if each.machine == machine), None)
        told = options.get("deploy_term")
        term = record.term if told is None else int(told.partition("/")[2])
        begins = route in (CREATE_MACHINE, UPDATE_MACHINE, DELETE_MACHINE)
        self.ledger.sent(
            SentChange(
                node=node,
                route=route.name,
                version=int(version),
                term=term,
                slot=slot,
                machine=machine,
                begins=begins,
            )
        )

    def comes(self, node: NodeId, route: Any, call: Call[Any, Any, Any]) -> Callable[[], None]:
        version, _, number = (call.deploy_term or "").partition("/")
        app, store = next(iter(self._hosts.values())).world.store.get(APPS, APP), self._hosts[node].world.store
        told = store.get(DEPLOY_TERMS, app.id) if app is not None else None
        before = max(self.ledger.begins(node), (0, 0) if told is None else (told.version, told.term))

        def done() -> None:
            self.ledger.did(node, route.name, (int(version), int(number)), before)
            if route is UPDATE_MACHINE and is_of(call.body.config, int(version)):
                self.ledger.changed(int(version), call.params.machine_id)

        return done

    def _kept(self, version: int) -> KeptDeploy | None:
        """What a majority of voters has of a deploy, whether they are up or not."""
        app = next(iter(self._hosts.values())).world.store.get(APPS, APP)
        assert app is not None
        key = deploy_key(app.id, version)
        found = [register for host in self._hosts.values() if (register := host.world.store.get(DEPLOY_REGISTERS, key))]
        kept = surely_kept(found)
        up = next((host.worker for host in self._hosts.values() if host.worker is not None), None)
        if kept is None or up is None:
            return None
        return KeptDeploy(kept.term, opened_state(kept.state, DeployNodes(self._fleet, up)).slots)
