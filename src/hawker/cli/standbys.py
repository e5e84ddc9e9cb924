"""Spares of a machine that is moved: all of them are found, also those at nodes that are away, and pointed at its copy
before it goes.
"""

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from hawker.api.call_metadata import CallMetadata
from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.catalog import QUERY_CATALOG, CatalogStatement
from hawker.api.contract.machine import (
    GET_MACHINE,
    LIST_MACHINES,
    UPDATE_MACHINE,
    ListMachinesQuery,
    Machine,
    MachineParams,
    UpdateMachineRequest,
)
from hawker.cli import waiting
from hawker.cli.exits import Failure
from hawker.clock import Clock
from hawker.errors import NotFound, Unavailable
from hawker.machine import GONE, OFF, State

_OFF = OFF | {State.CREATED}
_TOLD = (
    "SELECT machines.id, machines.node FROM machines, json_each(machines.standby_for) AS watched"
    " WHERE machines.app = ? AND watched.value = ? ORDER BY machines.id"
)


class Spares:
    def __init__(self, caller: Caller, clock: Clock, *, within_s: float) -> None:
        self._caller = caller
        self._clock = clock
        self._within_s = within_s

    async def of(self, app: str, machine: Machine) -> list[Machine]:
        """Raises `Failure` for one that cannot be changed now."""
        metadata, query = CallMetadata(), ListMachinesQuery(region=machine.region, include_leases=True)
        page = await self._caller.call(LIST_MACHINES, params=AppParams(app_name=app), query=query, metadata=metadata)
        found = [
            each
            for each in page.items
            if each.host_status == "ok" and machine.id in _watched(each) and each.state not in GONE
        ]
        if machine.region in metadata.missing_regions:
            await self._none_is_away(app, machine, {each.id for each in found})
        for each in found:
            if each.lease is not None:
                raise Failure(
                    f"a client holds the lease of its spare {each.id}: wait until the lease is released or expires"
                )
            if each.state not in _OFF | {State.STARTED, State.SUSPENDED}:
                raise Failure(f"an operation is under way on its spare {each.id}: try again in a moment")
        return found

    async def point(self, app: str, spares: Iterable[Machine], old: str, new: str) -> str:
        """From the old machine to its copy. One that runs is left alone, since a new version would reboot it: what is
        to be known of such. May be done again at any time."""
        left: list[str] = []
        for spare in spares:
            params = MachineParams(app_name=app, machine_id=spare.id)
            with suppress(NotFound):
                now = await self._caller.call(GET_MACHINE, params=params)
                if now.state in _OFF:
                    await self._point(params, now, old, new)
                elif now.state not in GONE:
                    left.append(now.id)
        return (
            f"spare {', '.join(left)} is not stopped and was left alone: it stands by for nothing now" if left else ""
        )

    async def in_place_of(self, app: str, machine: Machine) -> str:
        """The machine that this one, a spare that runs, has replaced, if that is at a node that is away: it has to give
        way when that node is back, and only this spare's own node tells it so."""
        if machine.state is State.STARTED:
            for machine_id in _watched(machine):
                try:
                    await self._caller.call(GET_MACHINE, params=MachineParams(app_name=app, machine_id=machine_id))
                except NotFound:
                    continue
                except Unavailable:
                    return machine_id
        return ""

    async def _point(self, params: MachineParams, spare: Machine, old: str, new: str) -> None:
        if old not in _watched(spare):
            return
        assert spare.config is not None, "it was asked for whole"
        standbys = tuple(dict.fromkeys(new if each == old else each for each in _watched(spare)))
        body = UpdateMachineRequest(
            config=msgspec.structs.replace(spare.config, standbys=standbys),
            current_version=spare.version,
            skip_launch=True,
        )
        changed = await self._caller.call(UPDATE_MACHINE, params=params, body=body)
        rests = waiting.AT_REST
        await waiting.reach(self._caller, params, rests, self._clock, self._within_s, version=changed.version)
        now = await self._caller.call(GET_MACHINE, params=params)
        if new not in _watched(now):
            raise Failure(f"its spare {now.id} kept its version {now.version}: see `hawker machine status {now.id}`")

    async def _none_is_away(self, app: str, machine: Machine, there: set[str]) -> None:
        """The list has those of nodes that answer; the catalog has all."""
        body = CatalogStatement(query=_TOLD, params=(app, machine.id))
        async with self._caller.stream(QUERY_CATALOG, body=body) as lines:
            told = [line.row async for line in lines if line.row is not None]
        for spare, node in told:
            if spare not in there:
                raise Failure(
                    f"its spare {spare} is at node {node}, which is away, and cannot be told of the copy: wait for that"
                    f" node, or, if it is gone for good, `hawker node forget {node}`"
                )


def that_stand_by(spares: Iterable[Machine]) -> tuple[str, ...]:
    """Those that do not run: their hosts are no place for what they stand by for."""
    return tuple(each.id for each in spares if each.state in _OFF)


def _watched(machine: Machine) -> tuple[str, ...]:
    return (machine.config.standbys if machine.config else None) or ()
