"""Clients of a fleet, one at each node's broker: what they order, what they are told, and what each node says of itself
in the end."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from hawker.api.caller import Caller
from hawker.api.client import Client
from hawker.api.contract.app import CREATE_APP, GET_APP, AppParams, CreateAppRequest
from hawker.api.contract.catalog import QUERY_CATALOG, CatalogStatement
from hawker.api.contract.cluster import LIST_NODES, FleetNode
from hawker.api.contract.machine import (
    CREATE_MACHINE,
    GET_MACHINE,
    LIST_MACHINES,
    CreateMachineRequest,
    Machine,
    MachineParams,
)
from hawker.api.contract.node import NODE_INFO, NodeInfo
from hawker.chaos.fleet.real_fleet import LabFleet, LabNode
from hawker.chaos.fleet.report import OrderAnswer
from hawker.clock import Clock
from hawker.config import Guest, MachineConfig
from hawker.errors import HawkerError, NoRoom, Unavailable
from hawker.ids import MachineId
from hawker.log import Secret
from hawker.proof.fleet import Promised
from hawker.value_object import ValueObject

APP = "trial"
ORDER = "trial_order"
_HERE = AppParams(app_name=APP)
_REPLICA = (
    "SELECT 'machine', node, id, state, version FROM machines"
    " UNION ALL SELECT 'app', node, name, org, home FROM apps"
    " UNION ALL SELECT 'volume', node, id, state, machine FROM volumes"
    " UNION ALL SELECT 'takeover', node, machine, spare, seen FROM takeovers"
)


class ToldOrders(ValueObject, frozen=True):
    """What clients were told: promises, and how long each answer took, by its outcome."""

    promised: list[Promised] = msgspec.field(default_factory=list)
    answers: list[OrderAnswer] = msgspec.field(default_factory=list)


class FleetClients:
    """`at` has one for each node, in the fleet's order."""

    def __init__(self, at: Sequence[Caller], clock: Clock, config: MachineConfig) -> None:
        self.at = at
        self._clock = clock
        self._config = config
        self.promised: list[Promised] = []

    async def open(self) -> None:
        await self.at[0].call(CREATE_APP, body=CreateAppRequest(name=APP))

    async def knows_the_app(self, broker: int) -> bool:
        """Whether this broker has heard of the app, and of all nodes."""
        await self.at[broker].call(GET_APP, params=_HERE)
        return all(node.api and node.capacity is not None for node in await self.nodes(broker))

    async def order(
        self, broker: int, name: str, told: ToldOrders, *, keyed: bool = True, timeout_s: float = 30.0
    ) -> None:
        """Once, and note what was answered."""
        began = self._clock.monotonic()
        outcome, why = "filled", ""
        try:
            machine = await self.create(broker, name, keyed=keyed, timeout_s=timeout_s)
        except NoRoom as error:
            outcome, why = "refused", str(error)
        except Unavailable as error:
            outcome, why = "unavailable", str(error)
        except HawkerError as error:  # `OrderUncertain` among them, or the answer was lost on the way to us
            outcome, why = "unknown", str(error)
        else:
            promise = Promised(order=name, machine=MachineId(machine.id))
            told.promised.append(promise)
            self.promised.append(promise)
        told.answers.append(OrderAnswer(outcome=outcome, seconds=self._clock.monotonic() - began, why=why))

    async def create(
        self,
        broker: int,
        name: str,
        *,
        keyed: bool = True,
        standbys: tuple[str, ...] | None = None,
        timeout_s: float = 30.0,
    ) -> Machine:
        """The machine bears the order's name; whoever gives the order again with its key gets the same machine."""
        config = MachineConfig(
            image=self._config.image,
            init=self._config.init,
            restart=self._config.restart,
            guest=Guest(cpu_kind="shared", cpus=1, memory_mb=256),
            metadata={ORDER: name},
            standbys=standbys,
        )
        body = CreateMachineRequest(config=config, skip_launch=True if standbys else None)
        return await self.at[broker].call(
            CREATE_MACHINE, params=_HERE, body=body, idempotency_key=name if keyed else None, timeout_s=timeout_s
        )

    async def machine(self, broker: int, machine_id: str) -> Machine:
        return await self.at[broker].call(GET_MACHINE, params=MachineParams(app_name=APP, machine_id=machine_id))

    async def machines(self, broker: int) -> tuple[Machine, ...]:
        return (await self.at[broker].call(LIST_MACHINES, params=_HERE)).items

    async def nodes(self, broker: int) -> tuple[FleetNode, ...]:
        return (await self.at[broker].call(LIST_NODES)).nodes

    async def info(self, broker: int) -> NodeInfo:
        return await self.at[broker].call(NODE_INFO)

    async def replica(self, broker: int) -> frozenset[tuple[object, ...]]:
        """What this node's catalog says of the region."""
        statement = CatalogStatement(query=_REPLICA)
        async with self.at[broker].stream(QUERY_CATALOG, body=statement) as lines:
            return frozenset([line.row async for line in lines if line.row is not None])


@asynccontextmanager
async def clients_of(fleet: LabFleet, clock: Clock, config: MachineConfig) -> AsyncIterator[FleetClients]:
    async with AsyncExitStack() as stack:
        token = Secret(fleet.stalls[0].daemon.token)
        yield FleetClients([await _client(stack, stall, token) for stall in fleet.stalls], clock, config)


async def _client(stack: AsyncExitStack, stall: LabNode, token: Secret) -> Client:
    return await stack.enter_async_context(Client(stall.url, token))
