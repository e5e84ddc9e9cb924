"""Answers about a machine's metadata. They need no lease and make no new version (contract 3.2, 3.4)."""

from collections.abc import Mapping

import msgspec

from hawker.api.contract.machine import MachineParams
from hawker.api.contract.metadata import (
    DELETE_METADATA,
    GET_METADATA,
    LIST_METADATA,
    SET_METADATA,
    UPDATE_METADATA,
    MetadataKeyParams,
    MetadataValue,
    SetMetadataRequest,
    UpdateMetadataRequest,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.config import MachineConfig, validate_metadata
from hawker.errors import NotFound, WrongState
from hawker.ids import AppName, MachineId
from hawker.machine import GONE
from hawker.netpolicy.policies import Fences
from hawker.store.contract import Store, Tx
from hawker.worker.handlers.target import MachineFinder
from hawker.worker.table import MachineTable


class MetadataHandlers:
    def __init__(self, machines: MachineFinder, store: Store, table: MachineTable, fences: Fences) -> None:
        self._machines = machines
        self._store = store
        self._table = table
        self._fences = fences

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_METADATA, self.list)
        handlers.on(UPDATE_METADATA, self.update)
        handlers.on(GET_METADATA, self.get)
        handlers.on(SET_METADATA, self.set)
        handlers.on(DELETE_METADATA, self.delete)

    async def list(self, call: Call[MachineParams, NoQuery, None]) -> dict[str, str]:
        return self._machines.find(call.params).config.metadata or {}

    async def get(self, call: Call[MetadataKeyParams, NoQuery, None]) -> MetadataValue:
        metadata = self._machines.find(call.params).config.metadata or {}
        if call.params.key not in metadata:
            raise NotFound(f"metadata key '{call.params.key}' not found")
        return MetadataValue(value=metadata[call.params.key])

    async def update(self, call: Call[MachineParams, NoQuery, UpdateMetadataRequest]) -> None:
        machine_id = self._machines.find(call.params).id
        await self._merge(machine_id, call.body.metadata or {}, call.body.machine_version or None)

    async def set(self, call: Call[MetadataKeyParams, NoQuery, SetMetadataRequest]) -> None:
        await self._merge(self._machines.find(call.params).id, {call.params.key: call.body.value}, None)

    async def delete(self, call: Call[MetadataKeyParams, NoQuery, None]) -> None:
        await self._merge(self._machines.find(call.params).id, {call.params.key: None}, None)

    async def _merge(self, machine_id: MachineId, changes: Mapping[str, str | None], version: str | None) -> None:
        """Null and "" remove a key; what is not named stays."""
        table = self._table

        def apply(tx: Tx) -> AppName:
            record = table.get(tx, machine_id)
            if record.state in GONE:
                raise NotFound("machine not found")
            if version not in (None, record.version):
                raise WrongState(f"machine version {version} is stale, the current one is {record.version}")
            previous = record.previous
            if previous is not None:  # an update that falls back must not lose what is acknowledged here
                previous = msgspec.structs.replace(previous, config=_merged(previous.config, changes))
            table.change(tx, record, config=_merged(record.config, changes), previous=previous)
            return record.app

        app = await self._store.write(apply)
        await self._fences.renew_soon(app)


def _merged(config: MachineConfig, changes: Mapping[str, str | None]) -> MachineConfig:
    merged = {**(config.metadata or {}), **changes}
    metadata = {key: value for key, value in merged.items() if value}
    validate_metadata(metadata)
    return msgspec.structs.replace(config, metadata=metadata or None)
