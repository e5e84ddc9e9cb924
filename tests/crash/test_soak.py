"""Many lives of a worker with a random client, random ends of workloads and random deaths. A seed repeats a run."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hawker.errors import HawkerError
from hawker.ids import MachineId
from hawker.machine import State
from hawker.store.memory import Faults
from hawker.worker.records import DESTROYED, MACHINES, MachineRecord
from tests.worker.hourglass import in_virtual_time
from tests.worker.invariants import check_at_rest, check_store
from tests.worker.premises import Death
from tests.worker.stall import Stall, Worker

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time
SEEDS, BATCHES = 200, 10
QUIET_S = 120.0
SMALL = {"cpu_kind": "shared", "cpus": 1, "memory_mb": 256}
RUNS = frozenset({State.STARTED, State.STOPPED, State.FAILED})


@dataclass
class Told:
    """What a client knows of one machine: the last call that was acknowledged; `sure` while none has been cut off."""

    last: str = "create"
    sure: bool = True
    known: bool = True  # what `env` and `metadata` are
    env: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)


class Client:
    """Calls at random and remembers what was acknowledged."""

    def __init__(self, stall: Stall, chance: random.Random) -> None:
        self._stall = stall
        self._chance = chance
        self._orders = 0
        self.told: dict[str, Told] = {}

    async def act(self, worker: Worker) -> None:
        verb = self._chance.choice(
            ("create", "start", "stop", "restart", "update", "destroy", "metadata", "end", "end", "pause", "pause")
        )
        if verb == "pause":
            await self._stall.clock.sleep(self._chance.choice((0.0, 0.01, 0.3, 5.0, 40.0)))
        elif verb == "create" or not self.told:
            await self._create(worker)
        else:
            await self._call(worker, verb, self._chance.choice(list(self.told)))
        check_store(worker.store)

    async def _create(self, worker: Worker) -> None:
        """The same key until it is answered, as a client that was cut off asks again."""
        policy = self._chance.choice(("no", "always", "on-failure"))
        machine = None
        try:
            machine = await worker.create(key=f"order {self._orders}", restart={"policy": policy}, guest=SMALL)
        except HawkerError:
            return
        finally:
            self._orders += machine is not None or self._chance.random() < 0.3
        self.told.setdefault(machine.id, Told())

    async def _call(self, worker: Worker, verb: str, machine_id: str) -> None:
        told = self.told[machine_id]
        if verb == "end":
            self.end(machine_id)
            return
        sure, known = told.sure, told.known
        told.sure, told.known = False, known and verb not in ("update", "metadata")  # until it is answered
        value = str(self._chance.random())
        try:
            match verb:
                case "start":
                    await worker.start(machine_id)
                case "stop":
                    await worker.stop(machine_id, timeout="3s")
                case "restart":
                    await worker.restart(machine_id)
                case "update":
                    await worker.update(machine_id, env={"A": value}, guest=SMALL, metadata=told.metadata)
                    told.env = {"A": value}
                case "metadata":
                    await worker.set_metadata(machine_id, "key", value)
                    told.metadata = {"key": value}
                case "destroy":
                    await worker.destroy(machine_id, force=self._chance.random() < 0.7)
        except HawkerError:
            told.sure, told.known = sure, known  # refused: nothing was changed
            return
        told.sure, told.known = True if verb != "metadata" else sure, known
        told.last = told.last if verb == "metadata" else verb

    def end(self, machine_id: str) -> None:
        """A workload ends by itself, whether a daemon lives or not."""
        self._stall.host.end(MachineId(machine_id), self._chance.choice((0, 1, 137)))

    def check(self) -> None:
        """At rest: whatever was acknowledged last is so."""
        machines = {record.id: record for _, record in self._stall.store.scan(MACHINES)}
        gone = {record.id for _, record in self._stall.store.scan(DESTROYED)}
        for machine_id, told in self.told.items():
            assert machine_id in machines or machine_id in gone, "an acknowledged machine is not forgotten"
            record = machines.get(MachineId(machine_id))
            if told.sure and told.last == "destroy":
                assert record is None
            if told.sure and record is not None:
                self._check(record, told)

    def _check(self, record: MachineRecord, told: Told) -> None:
        expected = {State.STOPPED, State.FAILED} if told.last == "stop" else RUNS
        assert record.state in expected, f"{record.id}: {told.last} was acknowledged, and it is {record.state}"
        if told.known:
            assert ((record.config.env or {}), (record.config.metadata or {})) == (told.env, told.metadata)


async def live(stall: Stall, client: Client, chance: random.Random) -> None:
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
    stall = Stall(directory, seed=seed, reconciles=seed % 3 == 0)
    client = Client(stall, chance)
    for _ in range(chance.randint(2, 5)):
        stall.fuse.burns_at = stall.fuse.edges + chance.randint(1, 120)
        stall.crash(chance.randint(0, stall.store.pending), Faults(freeze_after=chance.randint(2, 120)))
        await live(stall, client, chance)
        for machine_id in list(client.told):
            if chance.random() < 0.2:
                client.end(machine_id)
        await stall.clock.sleep(chance.choice((0.0, 1.0, 100.0)))
    stall.fuse.burns_at = None
    stall.crash(chance.randint(0, stall.store.pending))
    async with stall.open() as worker:
        await worker.at_rest()
        await stall.clock.sleep(QUIET_S)
        await worker.at_rest()
        check_at_rest(stall)
        client.check()


@pytest.mark.parametrize("batch", range(BATCHES))
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
