"""Answers about leases."""

from hawker.api.contract.lease import (
    CREATE_LEASE,
    GET_LEASE,
    RELEASE_LEASE,
    LeaseAnswer,
    LeaseQuery,
    LeaseReleased,
    LeaseRequest,
    lease_released,
)
from hawker.api.contract.machine import MachineParams
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.clock import Clock
from hawker.errors import NotFound
from hawker.machine import GONE
from hawker.record import views
from hawker.record.machine import MachineRecord
from hawker.store.contract import Store, Tx
from hawker.worker import leases
from hawker.worker.handlers.target import MachineFinder
from hawker.worker.table import MachineTable


class LeaseHandlers:
    def __init__(self, machines: MachineFinder, store: Store, table: MachineTable, clock: Clock) -> None:
        self._machines = machines
        self._store = store
        self._table = table
        self._clock = clock

    def bind(self, handlers: Handlers) -> None:
        handlers.on(CREATE_LEASE, self.create)
        handlers.on(GET_LEASE, self.get)
        handlers.on(RELEASE_LEASE, self.release)

    async def create(self, call: Call[MachineParams, LeaseQuery, LeaseRequest]) -> LeaseAnswer:
        clock, table = self._clock, self._table
        machine_id = self._machines.find(call.params).id
        ttl_s = float(call.body.ttl or call.query.ttl or leases.DEFAULT_S)
        fresh = leases.new(clock, call.caller, call.body.description or "", ttl_s)

        def apply(tx: Tx) -> MachineRecord:
            record = table.get(tx, machine_id)
            if record.state in GONE:
                raise NotFound("machine not found")
            return leases.acquire(tx, table, clock, record, nonce=call.nonce, fresh=fresh)

        held = await self._store.write(apply)
        return views.lease(held, leases.require(held, clock.now()))

    async def get(self, call: Call[MachineParams, NoQuery, None]) -> LeaseAnswer:
        record = self._machines.find(call.params)
        return views.lease(record, leases.require(record, self._clock.now()))

    async def release(self, call: Call[MachineParams, NoQuery, None]) -> LeaseReleased:
        machine_id = self._machines.find(call.params).id

        def apply(tx: Tx) -> None:
            record = self._table.lookup(tx, machine_id)
            if record is None or record.state in GONE:
                raise NotFound("lease not found")
            leases.release(tx, self._table, record, nonce=call.nonce, now=self._clock.now())

        await self._store.write(apply)
        return lease_released()
