"""For each flow, scenes that play it on a real node: what is there before, the one call, and where the machine must be
in the end. Whoever dies in between, and how often, is not their concern.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hawker.chaos import copy_scenes
from hawker.chaos.customer import exits_of
from hawker.chaos.stage import NEW_ENV, SAMPLE, Stage
from hawker.chaos.volume_scenes import (
    broken_with_volume,
    create_broken_with_volume,
    create_with_volume,
    destroy_volume,
    extend_volume,
    make_volume,
    off_with_volume,
    running_beside_volume,
    running_with_volume,
    with_free_volume,
)
from hawker.failpoint import ELSEWHERE
from hawker.history.flow import ARCHIVE
from hawker.ids import MachineId
from hawker.machine import State
from hawker.proof.promises import Call
from hawker.worker.lifecycle import FLOWS

_ONLY_PLAYED = ("volume_create.make.undo", "volume_create.make.undone")
"""Of a volume that cannot be made: no client can bring a host to refuse that; the simulator breaks its disks."""
_ONLY_GUESTS = ("suspend.freeze.saved", "suspend.freeze.published", "resume.thaw.restored", "resume.thaw.forgotten")
"""Of memory that is written to a file; a container's stays where it is. tests/crash/test_kill_guests.py meets them."""

_LESS_MIB = 200  # than a machine has when nothing is said
_SIGNAL = "SIGUSR1"  # ends a workload that does not expect it


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


async def _suspended(stage: Stage) -> MachineId:
    machine_id = await _running(stage)
    await _suspend(stage, machine_id)
    await stage.customer.reaches(machine_id, State.SUSPENDED)
    return machine_id


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


async def _suspend(stage: Stage, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await stage.ask(Call.SUSPEND, machine_id, stage.customer.suspend(machine_id))
    return machine_id


async def _set_memory(stage: Stage, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await stage.customer.set_memory(machine_id, _LESS_MIB)
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
_DISCARDED = Ended((*_ASKED.codes, *_KILLED.codes), True)  # what is in a snapshot hears no signal


@dataclass(frozen=True, slots=True)
class Scene:
    """`covers`: the places that it is about, by how they begin; of an `undoing` one, those of undos. `undone` and
    `done`: where the machine is when the call took no effect, and when it did. `exits`: what its history then tells.
    `asks` while the call is an order that may be given again when no answer came; `archives` where the node has an
    archive; `contained`: only where machines have control groups; `sweeps` where the
    node looks every second for what is to go."""

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
    contained: bool = False
    sweeps: bool = False
    env: dict[str, str] = field(default_factory=dict)

    def is_about(self, place: str) -> bool:
        return place.startswith(self.covers) and (not self.undoing or ".undo" in place)


_STARTED, _STOPPED, _FAILED, _DESTROYED = State.STARTED, State.STOPPED, State.FAILED, State.DESTROYED
_SUSPENDED = State.SUSPENDED
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
    Scene("suspend", "suspend", ("suspend.",), _running, _suspend, _STARTED, _SUSPENDED, contained=True),
    Scene("resume", "resume", ("resume.",), _suspended, _start, _SUSPENDED, _STARTED, contained=True),
    Scene("discard", "stop", ("stop.",), _suspended, _stop, _SUSPENDED, _STOPPED, (_DISCARDED,),
          contained=True),
    Scene("memory", "memory", ("memory.",), _running, _set_memory, _STARTED, _STARTED, contained=True),
    Scene("rest", "rest", ("rest.", "instance."), _running, _end, _STARTED, _STOPPED, (_BY_ITSELF,), asks=False),
    Scene("restart", "restart", ("restart.",), _running, _restart, _STARTED, _STARTED, (_ASKED,)),
    Scene("restart in vain", "restart", ("restart.",), _off_and_broken, _restart, _STOPPED, _FAILED, undoing=True),
    Scene("update", "update", ("update.",), _running, _update, _STARTED, _STARTED, (_ASKED,), env=NEW_ENV),
    Scene("update in vain", "update", ("update.",), _running, _update_broken, _STARTED, _FAILED, (_ASKED,), True),
    Scene("destroy", "destroy", ("destroy.",), _running, _destroy, _STARTED, _DESTROYED, (_KILLED,)),
    Scene("create with a volume", "create", ("create.volume.",), with_free_volume, create_with_volume, None,
          _STARTED, contained=True),
    Scene("create with a volume in vain", "create", ("create.image.", "create.volume."), with_free_volume,
          create_broken_with_volume, None, _DESTROYED, undoing=True, contained=True),
    Scene("start with a volume in vain", "start", ("start.volume.",), broken_with_volume, _start, _STOPPED, _FAILED,
          undoing=True, contained=True),
    Scene("stop with a volume", "stop", ("stop.release.",), running_with_volume, _stop, _STARTED, _STOPPED,
          (_ASKED,), contained=True),
    Scene("destroy with a volume", "destroy", ("destroy.remove.",), running_with_volume, _destroy, _STARTED,
          _DESTROYED, (_KILLED,), contained=True),
    Scene("make a volume", "volume_create", ("volume_create.",), _running, make_volume, _STARTED, _STARTED,
          contained=True),
    Scene("extend a volume", "volume_extend", ("volume_extend.",), off_with_volume, extend_volume, _STOPPED,
          _STOPPED, contained=True),
    Scene("destroy a volume", "volume_destroy", ("volume_destroy.",), running_beside_volume, destroy_volume,
          _STARTED, _STARTED, contained=True, sweeps=True),
    Scene("snapshot", "volume_snapshot", ("volume_snapshot.",), running_with_volume, copy_scenes.take_snapshot,
          _STARTED, _STARTED, contained=True),
    Scene("restore", "volume_restore", ("volume_restore.",), copy_scenes.with_snapshot, copy_scenes.restore_snapshot,
          _STARTED, _STARTED, contained=True),
    Scene("fork", "volume_fork", ("volume_fork.",), running_with_volume, copy_scenes.fork_volume, _STARTED, _STARTED,
          contained=True),
    Scene("fork in vain", "volume_fork", ("volume_fork.fill.undo",), copy_scenes.off_with_damaged_volume,
          copy_scenes.fork_in_vain, _STOPPED, _STOPPED, contained=True),
    Scene("archive", "archive", ("archive.",), _destroyed, _await_archive, _DESTROYED, _DESTROYED, (_KILLED,),
          asks=False, archives=True),
)  # fmt: skip


_EDGES, _UNDO_EDGES = ("before", "after"), ("undo", "undone")


def declared() -> frozenset[str]:
    """Every place that the code and the flows' tables name."""
    return frozenset(place for places in _alike() for place in places)


def unmet(met: frozenset[str]) -> list[str]:
    """Declared places that nobody came by, of those that containers have. The edges of a step are met in each flow; its
    undo and the points inside it, when several flows share the step, in any of them."""
    missed = (place for places in _alike() if not places & met for place in places)
    return sorted(place for place in missed if not place.startswith((*_ONLY_PLAYED, *_ONLY_GUESTS)))


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
