"""Three played hosts with a machine and a free volume, for tests that order moves themselves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from msgspec import structs

from hawker.api.contract.move import (
    MOVE_FREE_VOLUME,
    MOVE_MACHINE,
    RECLAIM_MOVE,
    Move,
    MoveParams,
    MoveRequest,
    TakeBackRequest,
)
from hawker.api.contract.volume import VolumeParams
from hawker.ids import MachineId, NodeId, VolumeId
from hawker.machine import State
from hawker.record.move import GRANTS, MOVES, OPEN_MOVES, MoveRecord, MoveState
from hawker.record.node import TAKEOVERS, FailoverRecords, FencedRecord, TakeoverRecord
from hawker.sim.harness.loop import eventually
from hawker.sim.moves.move_host import MoveHost
from hawker.sim.moves.move_plan import MovePlan
from hawker.sim.moves.move_run import MoveSimulation
from hawker.sim.node.kit import SOUND, WorkerKit
from hawker.sim.node.sim_worker import APP, SimWorker, params


class PlayedFleet(MoveSimulation):
    """The first host has the machine and the volume."""

    @property
    def hosts(self) -> list[MoveHost]:
        return list(self._fleet.hosts.values())

    def worker(self, number: int) -> SimWorker:
        worker = self.hosts[number].worker
        assert worker is not None, "it is up"
        return worker

    @property
    def machine(self) -> str:
        return self._machine

    @property
    def free(self) -> str:
        return self._free

    @property
    def volume(self) -> VolumeId:
        """The machine's."""
        return self._volume

    def id(self, number: int) -> NodeId:
        return self.hosts[number].id

    async def move(self, source: int, to: int | None, **fields: object) -> Move:
        body = MoveRequest(to=None if to is None else self.id(to), **fields)  # type: ignore[arg-type]
        return await self.worker(source).api.call(MOVE_MACHINE, params=params(self.machine), body=body)

    async def move_free(self, source: int, to: int, **fields: object) -> Move:
        at, body = VolumeParams(app_name=APP, volume_id=self.free), MoveRequest(to=self.id(to), **fields)  # type: ignore[arg-type]
        return await self.worker(source).api.call(MOVE_FREE_VOLUME, params=at, body=body)

    async def reclaim(self, move_id: str, **wish: bool) -> Move:
        body = TakeBackRequest(**wish)
        return await self.worker(0).api.call(RECLAIM_MOVE, params=MoveParams(move_id=move_id), body=body)

    async def granted_to_a_lost_node(self) -> str:
        """The second host loses power before it has heard."""
        move = await self.move(0, 1)
        self._fleet.call_network.late.append("accept_move")
        self._fleet.call_network.late_s = 0.0
        await eventually(self._clock, lambda: self.hosts[0].world.store.get(GRANTS, self.machine), 60, 0.0005)
        await self.hosts[1].kill(power=True)
        return move.id

    async def moved_to_a_lost_node(self) -> str:
        """The second host loses power while the machine runs there."""
        move = await self.move(0, 1)
        assert (await self.ended(0, move.id)).state is MoveState.DONE
        await self.worker(1).reaches(self.machine, State.STARTED)
        await self._clock.sleep(10)
        await self.hosts[1].kill(power=True)
        return move.id

    async def dies(self, number: int, place: str) -> None:
        """The host's daemon is killed at this place, with all that was not synced, and begins again."""
        host = self.hosts[number]
        host.world.crash_points.burns_in = place
        if host.worker is None:
            await host.begin(self._tasks)
        await eventually(self._clock, lambda: host.worker is None, 600, 0.01)
        host.world.store = host.world.store.crash(0)
        await host.begin(self._tasks)

    async def failed_over(self) -> FailoverRecords:
        """What the first host remembers of the machine once it has both taken over and given way."""
        machine, lost, spare = MachineId(self.machine), MachineId("d0000000000001"), MachineId("e0000000000001")
        took = TakeoverRecord(machine=lost, spare=machine, owner=NodeId("aaaaaaaa"), seen=1.0, at=2.0)
        known = FailoverRecords(fenced=FencedRecord(spare=spare, seen=3.0, at=4.0), takeovers=(took,))
        store = self.hosts[0].world.store
        other = structs.replace(took, spare=spare)
        await store.write(lambda tx: tx.put(TAKEOVERS, f"{lost}/{spare}", other))
        await store.write(lambda tx: known.enter(tx, machine))
        return known

    def remembers(self, number: int) -> FailoverRecords:
        return FailoverRecords.of(self.hosts[number].world.store, MachineId(self.machine))

    def forget_acknowledged(self) -> None:
        """What was written is given up."""
        self._acknowledged.clear()

    async def ended(self, source: int, move_id: str) -> MoveRecord:
        def over() -> bool:
            record = self.hosts[source].world.store.get(MOVES, move_id)
            return record is not None and record.state not in OPEN_MOVES

        await eventually(self._clock, over, 3600, 0.05)
        record = self.hosts[source].world.store.get(MOVES, move_id)
        assert record is not None
        return record

    async def again(self, number: int, *, kept: float = 1.0, power: bool = False) -> None:
        """Killed, and up again."""
        await self.hosts[number].kill(kept=kept, power=power)
        await self.hosts[number].begin(self._tasks)

    def judged(self) -> list[str]:
        self._judge()
        return [str(each) for each in self._found]

    async def settled(self) -> list[str]:
        """What is found once everything has come to its end."""
        await self._rest()
        return self.judged()


@asynccontextmanager
async def played_fleet(kit: WorkerKit = SOUND, seed: int = 1) -> AsyncIterator[PlayedFleet]:
    fleet = PlayedFleet(MovePlan(seed=seed, operations=()), kit)
    async with anyio.create_task_group() as tasks:
        fleet._tasks = tasks
        await tasks.start(fleet._fleet.call_network.serve)
        for host in fleet.hosts:
            await host.begin(tasks)
        await fleet._stock()
        tasks.start_soon(fleet._watch)
        yield fleet
        for host in fleet.hosts:
            await host.kill()
        tasks.cancel_scope.cancel()
