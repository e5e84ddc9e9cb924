"""A client of a simulated fleet that orders several machines at once, all of them or as many as there can be, and makes
volumes with machines on them.
"""

from hawker.api.bodies import CreateMachineRequest, CreateVolumeRequest, PlaceAnswer, PlaceRequest
from hawker.api.routes import CREATE_VOLUME, AppParams
from hawker.api.routes.market import PLACE
from hawker.errors import HawkerError, NoRoom, OrderUncertain
from hawker.ids import MachineId, VolumeId
from hawker.proof.violation import Invariant, Violation
from hawker.sim.fleet.client import FleetClient
from hawker.sim.fleet.ledger import Counted
from hawker.sim.fleet.operation import FleetOperation, FleetVerb
from hawker.sim.node.sim_worker import config_of

COUNTED = "counted"
"""The key in a machine's metadata that names the order of several."""

_MIB = 256


class Buyer(FleetClient):
    async def _do(self, deed: FleetOperation) -> None:
        match deed.verb:
            case FleetVerb.COUNT:
                await self._count(deed)
            case FleetVerb.VOLUME:
                await self._volume(deed)
            case _:
                await super()._do(deed)

    async def _count(self, deed: FleetOperation) -> None:
        """With a key it is asked for again, elsewhere, until there is an answer that counts."""
        keyed, whole = "key" in deed.word, "whole" in deed.word
        key = f"key of {deed.label}" if keyed else None
        order = Counted(deed.label, self.app, key, int(deed.amount), whole)
        self._ledger.counted[deed.label] = order
        self._say(deed, f"{deed.verb} {deed.label}: {order.count}{', all or none' if whole else ''}")
        for broker in deed.nodes if key else deed.nodes[:1]:
            try:
                answer = await self._placed(broker, order)
            except HawkerError as error:
                self._say(deed, f"{deed.label}: {type(error).__name__}: {error}")
                order.refused = whole and isinstance(error, NoRoom) and broker == deed.nodes[0]
                if isinstance(error, NoRoom | OrderUncertain):
                    return
            else:
                return self._have(deed, order, answer)

    async def _placed(self, broker: int, order: Counted) -> PlaceAnswer:
        made = config_of(metadata={COUNTED: order.label}, guest={"memory_mb": _MIB})
        body = PlaceRequest(
            app=order.app, machine=CreateMachineRequest(config=made), count=order.count, all_or_nothing=order.whole
        )
        answer: PlaceAnswer = await self._call(broker, PLACE, body=body, idempotency_key=order.key)
        return answer

    def _have(self, deed: FleetOperation, order: Counted, answer: PlaceAnswer) -> None:
        order.machines = tuple(MachineId(machine.id) for machine in answer.machines)
        self._ledger.filled += len(order.machines)
        self._say(deed, f"{deed.label} is {', '.join(order.machines) or 'nothing'}")
        if order.whole and len(order.machines) < order.count:
            what = f"{len(order.machines)} of {order.count} were the answer to an order of all or none"
            self._ledger.find(Violation(Invariant.ALL_OR_NONE, deed.label, what))

    async def _volume(self, deed: FleetOperation) -> None:
        """And, once it is there, a machine on it, under the same label."""
        broker = deed.nodes[0]
        self._say(deed, f"{deed.verb} {deed.label}")
        body = CreateVolumeRequest(name=deed.label.replace("-", "_"), size_gb=1)
        try:
            made = await self._call(broker, CREATE_VOLUME, params=AppParams(app_name=self.app), body=body)
        except HawkerError as error:
            return self._say(deed, f"{deed.label}: {type(error).__name__}: {error}")
        self._ledger.volumes[deed.label] = VolumeId(made.id)
        self._say(deed, f"{deed.label} is {made.id}")
        await self._order(deed, f"key of {deed.label}")

    def _extra(self, deed: FleetOperation) -> dict[str, object]:
        volume = self._ledger.volumes.get(deed.label)
        return {} if volume is None else {"mounts": [{"volume": volume, "path": "/data"}]}
