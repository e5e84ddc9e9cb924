"""For each flow, scenes that play it on a real node: what is there before, the one call, and where the machine must be
in the end. Whoever dies in between, and how often, is not their concern.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from hawker.chaos.customer import Customer, exits_of
from hawker.chaos.larder import PROGRAM
from hawker.clock import Clock
from hawker.config import Init, MachineConfig, MachineRestart
from hawker.errors import DeadlineExceeded
from hawker.failpoint import ELSEWHERE
from hawker.guest import hello_path
from hawker.ids import MachineId
from hawker.machine import State
from hawker.proof.promises import Call, Promises
from hawker.worker.lifecycle import FLOWS
from hawker.worker.lifecycle.archive import ARCHIVE

APP = "scenes"
_LOOK_EVERY_S = 0.02
_SEEN_WITHIN_S = 30.0
NEW_ENV = {"VERSION": "new"}
SAMPLE = "hawker/hello"
_AGAIN, _NOT_AGAIN = MachineRestart(policy="always"), MachineRestart(policy="no")
_SIGNAL = "SIGUSR1"  # ends a workload that does not expect it


@dataclass(frozen=True, slots=True)
class Wares:
    """What may be ordered: `commandless` is an image that names no command. The process driver runs the sample program
    as it is on the host, where it asks for nothing. `archive` is where histories go, in scenes that have one."""

    driver: str
    commandless: str
    archive: Path

    def sample(self, *, persistent: bool = False) -> MachineConfig:
        init = None if self.driver == "container" else Init(exec=(str(hello_path()), "sleep", "3600"))
        return MachineConfig(image=SAMPLE, init=init, restart=_AGAIN if persistent else _NOT_AGAIN)

    def other(self) -> MachineConfig:
        """Another image, another environment."""
        on_host = (str(hello_path()), "sleep", "3600")
        init = Init(exec=(PROGRAM,) if self.driver == "container" else on_host)
        return MachineConfig(image=self.commandless, init=init, env=NEW_ENV, restart=_NOT_AGAIN)

    def echo(self, word: str) -> tuple[str, ...]:
        """A command that says it, in a machine."""
        return self._program(), "echo", word

    def environment(self) -> tuple[str, ...]:
        """A command that says what is set, in a machine."""
        return self._program(), "env"

    def _program(self) -> str:
        return PROGRAM if self.driver == "container" else str(hello_path())

    def broken(self) -> MachineConfig:
        """Can be ordered; that nothing says what to run is found at its launch."""
        return MachineConfig(image=self.commandless)


@dataclass(frozen=True, slots=True)
class Stage:
    """One life of the node, as a scene sees it. `promises` outlive it. `key` is that of the order, the same however
    often it is given."""

    customer: Customer
    wares: Wares
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

    async def ask(self, call: Call, machine_id: MachineId, ordered: Awaitable[None], **sets: dict[str, str]) -> None:
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
        raise DeadlineExceeded(f"what the scene waits for was not seen within {_SEEN_WITHIN_S:g} s")

    async def is_archived(self, machine_ids: frozenset[MachineId]) -> bool:
        """Whether the history of each has its file."""
        names = await run_sync(lambda: [file.name for file in self.wares.archive.rglob("*.zst")])
        return machine_ids <= {MachineId(name.split(".")[0]) for name in names}

    async def clear(self) -> None:
        """No machine is left of earlier plays."""
        for machine in await self.customer.machines():
            await self.remove(MachineId(machine.id))

    async def remove(self, machine_id: MachineId) -> None:
        """A machine whose create was never answered was promised to nobody."""
        ordered = self.customer.destroy(machine_id)
        if machine_id in self.promises.told:
            await self.ask(Call.DESTROY, machine_id, ordered)
        else:
            await ordered
        await self.customer.reaches(machine_id, State.DESTROYED)


Setting = Callable[[Stage], Awaitable[MachineId | None]]
Act = Callable[[Stage, MachineId | None], Awaitable[MachineId]]


# Before.


async def _nothing(stage: Stage) -> None:
    """But the sample image, brought without an operation."""
    await stage.customer.pull(SAMPLE)


async def _no_image(stage: Stage) -> None:
    await stage.customer.prune()


async def _running(stage: Stage) -> MachineId:
    await stage.customer.prune()  # of what an update is to bring
    return await stage.created(stage.wares.sample(), f"{stage.key} before", State.STARTED)


async def _persistent(stage: Stage) -> MachineId:
    return await stage.created(stage.wares.sample(persistent=True), f"{stage.key} before", State.STARTED)


async def _off(stage: Stage) -> MachineId:
    return await stage.created(stage.wares.sample(), f"{stage.key} before", State.STOPPED)


async def _off_and_broken(stage: Stage) -> MachineId:
    return await stage.created(stage.wares.broken(), f"{stage.key} before", State.STOPPED)


async def _destroyed(stage: Stage) -> MachineId:
    machine_id = await stage.created(stage.wares.sample(), f"{stage.key} before", State.STARTED)
    await stage.remove(machine_id)
    return machine_id


# The call.


async def _create(stage: Stage, _: MachineId | None) -> MachineId:
    return await stage.order(stage.wares.sample(), stage.key)


async def _prepare(stage: Stage, _: MachineId | None) -> MachineId:
    return await stage.order(stage.wares.sample(), stage.key, launch=False)


async def _create_broken(stage: Stage, _: MachineId | None) -> MachineId:
    return await stage.order(stage.wares.broken(), stage.key)


async def _start(stage: Stage, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await stage.ask(Call.START, machine_id, stage.customer.start(machine_id))
    return machine_id


async def _stop(stage: Stage, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await stage.ask(Call.STOP, machine_id, stage.customer.stop(machine_id))
    return machine_id


async def _restart(stage: Stage, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await stage.ask(Call.RESTART, machine_id, stage.customer.restart(machine_id))
    return machine_id


async def _update(stage: Stage, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    ordered = stage.customer.update(machine_id, stage.wares.other())
    await stage.ask(Call.UPDATE, machine_id, ordered, env=NEW_ENV)
    return machine_id


async def _update_broken(stage: Stage, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await stage.ask(Call.UPDATE, machine_id, stage.customer.update(machine_id, stage.wares.broken()), env={})
    return machine_id


async def _destroy(stage: Stage, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await stage.ask(Call.DESTROY, machine_id, stage.customer.destroy(machine_id))
    return machine_id


async def _end(stage: Stage, machine_id: MachineId | None) -> MachineId:
    """The workload ends by itself, and its node has seen it."""
    assert machine_id is not None
    await stage.customer.signal(machine_id, _SIGNAL)

    async def is_seen() -> bool:
        return bool(exits_of(await stage.customer.machine(machine_id)))

    await stage.until(is_seen)
    return machine_id


async def _await_archive(stage: Stage, machine_id: MachineId | None) -> MachineId:
    """The node comes to it by itself, within a second or two."""
    assert machine_id is not None

    async def is_taken() -> bool:
        return any(run.flow == ARCHIVE.name for run in await stage.customer.runs(machine_id))

    await stage.until(is_taken)
    return machine_id


@dataclass(frozen=True, slots=True)
class Ended:
    """An exit that the machine's history must tell: one of these codes, and whether it was asked for."""

    codes: tuple[int, ...]
    requested: bool

    def is_told_by(self, code: int, requested: bool) -> bool:
        return code in self.codes and requested == self.requested


_ASKED = Ended((0, 128 + 2), True)  # the server says goodbye, a sleeper just dies
_BY_ITSELF = Ended((128 + 10,), False)
_KILLED = Ended((128 + 9,), True)


@dataclass(frozen=True, slots=True)
class Scene:
    """`covers`: the places that it is about, by how they begin; of an `undoing` one, those of undos. `undone` and
    `done`: where the machine is when the call took no effect, and when it did. `exits`: what its history then tells.
    `asks` while the call is an order that may be given again when no answer came; `archives` where the node has an
    archive."""

    name: str
    flow: str
    covers: tuple[str, ...]
    before: Setting
    act: Act
    undone: State | None
    done: State
    exits: tuple[Ended, ...] = ()
    undoing: bool = False
    asks: bool = True
    archives: bool = False
    env: dict[str, str] = field(default_factory=dict)

    def is_about(self, place: str) -> bool:
        return place.startswith(self.covers) and (not self.undoing or ".undo" in place)


_STARTED, _STOPPED, _FAILED, _DESTROYED = State.STARTED, State.STOPPED, State.FAILED, State.DESTROYED
_PULL = ("pull.", "create.image.")

SCENES: tuple[Scene, ...] = (
    Scene("create", "create", ("create.",), _nothing, _create, None, _STARTED),
    Scene("create, left off", "create", ("create.rootfs.", "create.launch."), _nothing, _prepare, None, _STOPPED),
    Scene("create and pull", "pull", _PULL, _no_image, _create, None, _STARTED),
    Scene("create in vain", "create", ("create.",), _no_image, _create_broken, None, _DESTROYED, undoing=True),
    Scene("start", "start", ("start.",), _off, _start, _STOPPED, _STARTED),
    Scene("start in vain", "start", ("start.",), _off_and_broken, _start, _STOPPED, _FAILED, undoing=True),
    Scene("start again", "start", ("instance.",), _persistent, _end, _STARTED, _STARTED, (_BY_ITSELF,), asks=False),
    Scene("stop", "stop", ("stop.",), _running, _stop, _STARTED, _STOPPED, (_ASKED,)),
    Scene("rest", "rest", ("rest.", "instance."), _running, _end, _STARTED, _STOPPED, (_BY_ITSELF,), asks=False),
    Scene("restart", "restart", ("restart.",), _running, _restart, _STARTED, _STARTED, (_ASKED,)),
    Scene("restart in vain", "restart", ("restart.",), _off_and_broken, _restart, _STOPPED, _FAILED, undoing=True),
    Scene("update", "update", ("update.",), _running, _update, _STARTED, _STARTED, (_ASKED,), env=NEW_ENV),
    Scene("update in vain", "update", ("update.",), _running, _update_broken, _STARTED, _FAILED, (_ASKED,), True),
    Scene("destroy", "destroy", ("destroy.",), _running, _destroy, _STARTED, _DESTROYED, (_KILLED,)),
    Scene(
        "archive",
        "archive",
        ("archive.",),
        _destroyed,
        _await_archive,
        _DESTROYED,
        _DESTROYED,
        (_KILLED,),
        asks=False,
        archives=True,
    ),
)


_EDGES, _UNDO_EDGES = ("before", "after"), ("undo", "undone")


def declared() -> frozenset[str]:
    """Every place that the code and the flows' tables name."""
    return frozenset(place for places in _alike() for place in places)


def unmet(met: frozenset[str]) -> list[str]:
    """Declared places that nobody came by. The edges of a step are met in each flow; its undo and the points inside it,
    when several flows share the step, in any of them."""
    return sorted(place for places in _alike() if not places & met for place in places)


def without_repetition(met: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Of the places that each scene comes by, those that none before it came by, in this flow or in another one that
    shares the step."""
    seen: set[frozenset[str]] = set()
    alike = {place: places for places in _alike() for place in places}
    fresh = {}
    for name, places in met.items():
        fresh[name] = tuple(place for place in places if alike[place] not in seen)
        seen.update(alike[place] for place in places)
    return fresh


def _alike() -> list[frozenset[str]]:
    """Sets of places of which one must be met."""
    rows = [(step, f"{flow.name}.{step.name}") for flow in FLOWS for step in flow.steps]
    alone = {*ELSEWHERE, *(f"{name}.{edge}" for _, name in rows for edge in _EDGES)}
    shared: dict[tuple[object, ...], set[str]] = {}
    for step, name in rows:
        for point in (*step.points, *(_UNDO_EDGES if step.undo is not None else ())):
            shared.setdefault((step.name, step.do, step.undo, point), set()).add(f"{name}.{point}")
    return [*(frozenset({place}) for place in alone), *map(frozenset, shared.values())]
