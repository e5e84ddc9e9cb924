"""Many lives of a worker with a random client, random ends of workloads and random deaths. A seed repeats a run."""

import random
from pathlib import Path

import pytest

from hawker.errors import HawkerError
from hawker.ids import MachineId
from hawker.proof.promises import ClientCall, Promises
from hawker.sim.node.crash_points import Death
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.store.memory_store import StoreFaults
from tests.short_form import short_form
from tests.worker.hourglass import in_virtual_time
from tests.worker.invariants import check_at_rest, check_store

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time
SEEDS, BATCHES = 200, 10
QUIET_S = 120.0
SMALL = {"cpu_kind": "shared", "cpus": 1, "memory_mb": 256}


class Client:
    """Calls at random and remembers what was acknowledged."""

    def __init__(self, stall: MemoryWorld, chance: random.Random) -> None:
        self._stall = stall
        self._chance = chance
        self._orders = 0
        self.promises = Promises()

    async def act(self, worker: SimWorker) -> None:
        verb = self._chance.choice((*ClientCall, "end", "end", "pause", "pause"))
        if verb == "pause":
            await self._stall.clock.sleep(self._chance.choice((0.0, 0.01, 0.3, 5.0, 40.0)))
        elif verb == ClientCall.CREATE or not self.promises.told:
            await self._create(worker)
        elif verb == "end":
            self.end(self._any())
        else:
            await self._call(worker, ClientCall(verb), self._any())
        check_store(worker.store)

    async def _create(self, worker: SimWorker) -> None:
        """The same key until it is answered, as a client that was cut off asks again."""
        policy = self._chance.choice(("no", "always", "on-failure"))
        order, machine = f"order {self._orders}", None
        try:
            machine = await worker.create(key=order, restart={"policy": policy}, guest=SMALL)
        except HawkerError:
            return
        finally:
            self._orders += machine is not None or self._chance.random() < 0.3
        assert self.promises.created(MachineId(machine.id), order) == []

    async def _call(self, worker: SimWorker, call: ClientCall, machine_id: MachineId) -> None:
        told, value = self.promises.told[machine_id], {"key": str(self._chance.random())}
        ticket = self.promises.ask(machine_id, call)
        try:
            match call:
                case ClientCall.START:
                    await worker.start(machine_id)
                case ClientCall.STOP:
                    await worker.stop(machine_id, timeout="3s")
                case ClientCall.RESTART:
                    await worker.restart(machine_id)
                case ClientCall.UPDATE:
                    await worker.update(machine_id, env=value, guest=SMALL, metadata=dict(told.metadata or {}))
                case ClientCall.METADATA:
                    await worker.set_metadata(machine_id, "key", value["key"])
                case ClientCall.SUSPEND:
                    await worker.suspend(machine_id)
                case ClientCall.DESTROY:
                    await worker.destroy(machine_id, force=self._chance.random() < 0.7)
                case other:
                    raise AssertionError(f"{other} is not played here")
        except HawkerError:
            return ticket.refused()
        ticket.acknowledged(env=value, metadata=value if call is ClientCall.METADATA else told.metadata)

    def end(self, machine_id: MachineId) -> None:
        """A workload ends by itself, whether a daemon lives or not."""
        self._stall.host.end(machine_id, self._chance.choice((0, 1, 137)))

    def _any(self) -> MachineId:
        return self._chance.choice(list(self.promises.told))


async def live(stall: MemoryWorld, client: Client, chance: random.Random) -> None:
    """One life of the daemon, which ends in its death or after a while."""
    try:
        async with stall.open() as worker:
            await worker.app()
            for _ in range(chance.randint(2, 12)):
                await client.act(worker)
    except Death:
        return


async def soak(seed: int, directory: Path) -> None:
    chance = random.Random(seed)
    stall = MemoryWorld(directory, seed=seed, reconciles=seed % 3 == 0)
    client = Client(stall, chance)
    for _ in range(chance.randint(2, 5)):
        stall.crash_points.burns_at = stall.crash_points.edges + chance.randint(1, 120)
        stall.crash(chance.randint(0, stall.store.pending), StoreFaults(freeze_after=chance.randint(2, 120)))
        await live(stall, client, chance)
        for machine_id in list(client.promises.told):
            if chance.random() < 0.2:
                client.end(machine_id)
        await stall.clock.sleep(chance.choice((0.0, 1.0, 100.0)))
    stall.crash_points.burns_at = None
    stall.crash(chance.randint(0, stall.store.pending))
    async with stall.open() as worker:
        await worker.at_rest()
        await stall.clock.sleep(QUIET_S)
        await worker.at_rest()
        check_at_rest(stall)
        assert client.promises.broken(stall.store) == []


FEW = short_form(range(BATCHES), lambda batch: batch < 2, "twenty lives more a batch; two batches are the short form")


@pytest.mark.parametrize("batch", FEW)
async def test_many_lives_lose_nothing(batch: int, tmp_path: Path) -> None:
    for seed in range(batch, SEEDS, BATCHES):
        try:
            await soak(seed, tmp_path / str(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("seed", [1180, 1969])
async def test_a_seed_that_once_found_something(seed: int, tmp_path: Path) -> None:
    """Both: a start that lost its records in a crash was cancelled at its first step and left its instance running."""
    await soak(seed, tmp_path)
