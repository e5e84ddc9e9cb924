"""What a scenario is given: the machines that it may order, and one life of the node as its client sees it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import msgspec
from anyio.to_thread import run_sync

from hawker.chaos.guests import CONTAINED
from hawker.chaos.sample_image import PROGRAM
from hawker.chaos.scenario_client import ScenarioClient
from hawker.clock import Clock
from hawker.config import Init, MachineConfig, MachineRestart
from hawker.config.machine import Mount
from hawker.errors import DeadlineExceeded
from hawker.guest import hello_path
from hawker.ids import MachineId
from hawker.machine import State
from hawker.proof.promises import ClientCall, Promises

APP = "scenes"
NEW_ENV = {"VERSION": "new"}
SAMPLE = "hawker/hello"
_LOOK_EVERY_S = 0.02
_SEEN_WITHIN_S = 90.0
_AGAIN, _NOT_AGAIN = MachineRestart(policy="always"), MachineRestart(policy="no")


def named(key: str) -> str:
    """The key in the form that the name of a volume may have."""
    return key.replace(" ", "-")


@dataclass(frozen=True, slots=True)
class SampleMachines:
    """What may be ordered: `commandless` is an image that names no command. The process driver runs the sample program
    as it is on the host, where it asks for nothing. `archive` is where histories go, in scenarios that have one."""

    driver: str
    commandless: str
    archive: Path

    @property
    def contained(self) -> bool:
        return self.driver in CONTAINED

    def sample(self, *, persistent: bool = False) -> MachineConfig:
        init = None if self.contained else Init(exec=(str(hello_path()), "sleep", "3600"))
        return MachineConfig(image=SAMPLE, init=init, restart=_AGAIN if persistent else _NOT_AGAIN)

    def with_volume(self, config: MachineConfig, key: str) -> MachineConfig:
        """This config with the volume of this name."""
        return msgspec.structs.replace(config, mounts=(Mount(name=named(key), path="/data"),))

    def other(self) -> MachineConfig:
        """Another image, another environment."""
        on_host = (str(hello_path()), "sleep", "3600")
        init = Init(exec=(PROGRAM,) if self.contained else on_host)
        return MachineConfig(image=self.commandless, init=init, env=NEW_ENV, restart=_NOT_AGAIN)

    def echo(self, word: str) -> tuple[str, ...]:
        """A command that says it, in a machine."""
        return self._program(), "echo", word

    def environment(self) -> tuple[str, ...]:
        """A command that says what is set, in a machine."""
        return self._program(), "env"

    def _program(self) -> str:
        return PROGRAM if self.contained else str(hello_path())

    def broken(self) -> MachineConfig:
        """Can be ordered; that nothing says what to run is found at its launch."""
        return MachineConfig(image=self.commandless)


@dataclass(frozen=True, slots=True)
class ScenarioContext:
    """One life of the node, as a scenario sees it. `promises` outlive it. `key` is that of the order, the same however
    often it is given."""

    customer: ScenarioClient
    samples: SampleMachines
    promises: Promises
    key: str
    clock: Clock

    async def created(self, config: MachineConfig, key: str, state: State) -> MachineId:
        """A machine at rest."""
        machine_id = await self.order(config, key, launch=state is State.STARTED)
        await self.customer.reaches(machine_id, state)
        return machine_id

    async def order(self, config: MachineConfig, key: str, *, launch: bool = True) -> MachineId:
        machine_id = await self.customer.create(config, key, launch=launch)
        broken = self.promises.created(machine_id, key, env=config.env)
        assert not broken, broken
        return machine_id

    async def ask(
        self, call: ClientCall, machine_id: MachineId, ordered: Awaitable[None], **sets: dict[str, str]
    ) -> None:
        """Give an order, and note what was promised."""
        ticket = self.promises.ask(machine_id, call)
        await ordered
        ticket.acknowledged(env=sets.get("env"))

    async def until(self, seen: Callable[[], Awaitable[bool]]) -> None:
        """Raises `DeadlineExceeded`."""
        with anyio.move_on_after(_SEEN_WITHIN_S):
            while not await seen():
                await self.clock.sleep(_LOOK_EVERY_S)
            return
        raise DeadlineExceeded(f"what the scenario waits for was not seen within {_SEEN_WITHIN_S:g} s")

    async def is_archived(self, machine_ids: frozenset[MachineId]) -> bool:
        """Whether the history of each has its file."""
        names = await run_sync(lambda: [file.name for file in self.samples.archive.rglob("*.zst")])
        return machine_ids <= {MachineId(name.split(".")[0]) for name in names}

    async def clear(self) -> None:
        """No machine is left of earlier plays."""
        for machine in await self.customer.machines():
            await self.remove(MachineId(machine.id))

    async def remove(self, machine_id: MachineId) -> None:
        """A machine whose create was never answered was promised to nobody."""
        ordered = self.customer.destroy(machine_id)
        if machine_id in self.promises.told:
            await self.ask(ClientCall.DESTROY, machine_id, ordered)
        else:
            await ordered
        await self.customer.reaches(machine_id, State.DESTROYED)
