"""The kill scenarios: for each flow, what is there before, the one call, and where the machine must be in the end. Who
dies in between, and how often, is not their concern.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from hawker.chaos.scenario_context import NEW_ENV, SAMPLE, ScenarioContext, exits_of
from hawker.chaos.volume_scenarios import (
    back_up,
    broken_with_volume,
    create_broken_with_volume,
    create_with_volume,
    destroy_volume,
    extend_volume,
    fork_in_vain,
    fork_volume,
    make_volume,
    off_with_damaged_volume,
    off_with_volume,
    restore_backup,
    restore_snapshot,
    running_beside_volume,
    running_with_volume,
    take_snapshot,
    with_backup,
    with_free_volume,
    with_snapshot,
)
from hawker.failpoint import ELSEWHERE
from hawker.flytoml.machines import GROUP, PLATFORM
from hawker.history.archivist import ARCHIVE
from hawker.ids import MachineId
from hawker.machine import State
from hawker.proof.promises import ClientCall
from hawker.up.wiring import NODE_FLOWS
from hawker.value_object import ValueObject

_ONLY_PLAYED = ("volume_create.make.undo", "volume_create.make.undone")
"""Of a volume that cannot be made: no client can bring a host to refuse that; the simulator breaks its disks."""
_ONLY_GUESTS = ("suspend.freeze.saved", "suspend.freeze.published", "resume.thaw.restored", "resume.thaw.forgotten")
"""Of memory that is written to a file; a container's stays where it is. tests/crash/test_kill_guests.py meets them."""

_LESS_MIB = 200  # than a machine has when nothing is said
_SIGNAL = "SIGUSR1"  # ends a workload that does not expect it


_GROUP = "app"
_OWN = {"deploy": {"smoke": "0s", "smoke_rest": "0s"}}
_PORT = 8080


Setting = Callable[[ScenarioContext], Awaitable[MachineId | None]]
Act = Callable[[ScenarioContext, MachineId | None], Awaitable[MachineId]]


# Before.


async def _nothing(context: ScenarioContext) -> None:
    """But the sample image, brought without an operation."""
    await context.customer.pull(SAMPLE)


async def _no_image(context: ScenarioContext) -> None:
    await context.customer.prune()


async def _running(context: ScenarioContext) -> MachineId:
    await context.customer.prune()  # of what an update is to bring
    return await context.created(context.samples.sample(), f"{context.key} before", State.STARTED)


async def _persistent(context: ScenarioContext) -> MachineId:
    return await context.created(context.samples.sample(persistent=True), f"{context.key} before", State.STARTED)


async def _suspended(context: ScenarioContext) -> MachineId:
    machine_id = await _running(context)
    await _suspend(context, machine_id)
    await context.customer.reaches(machine_id, State.SUSPENDED)
    return machine_id


async def _off(context: ScenarioContext) -> MachineId:
    return await context.created(context.samples.sample(), f"{context.key} before", State.STOPPED)


async def _off_and_broken(context: ScenarioContext) -> MachineId:
    return await context.created(context.samples.broken(), f"{context.key} before", State.STOPPED)


async def _destroyed(context: ScenarioContext) -> MachineId:
    machine_id = await context.created(context.samples.sample(), f"{context.key} before", State.STARTED)
    await context.remove(machine_id)
    return machine_id


# The call.


async def _create(context: ScenarioContext, _: MachineId | None) -> MachineId:
    return await context.order(context.samples.sample(), context.key)


async def _prepare(context: ScenarioContext, _: MachineId | None) -> MachineId:
    return await context.order(context.samples.sample(), context.key, launch=False)


async def _create_broken(context: ScenarioContext, _: MachineId | None) -> MachineId:
    return await context.order(context.samples.broken(), context.key)


async def _start(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await context.ask(ClientCall.START, machine_id, context.customer.start(machine_id))
    return machine_id


async def _stop(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await context.ask(ClientCall.STOP, machine_id, context.customer.stop(machine_id))
    return machine_id


async def _suspend(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await context.ask(ClientCall.SUSPEND, machine_id, context.customer.suspend(machine_id))
    return machine_id


async def _set_memory(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await context.customer.set_memory(machine_id, _LESS_MIB)
    return machine_id


async def _restart(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await context.ask(ClientCall.RESTART, machine_id, context.customer.restart(machine_id))
    return machine_id


async def _update(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    ordered = context.customer.update(machine_id, context.samples.other())
    await context.ask(ClientCall.UPDATE, machine_id, ordered, env=NEW_ENV)
    return machine_id


async def _update_broken(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await context.ask(
        ClientCall.UPDATE, machine_id, context.customer.update(machine_id, context.samples.broken()), env={}
    )
    return machine_id


async def _destroy(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await context.ask(ClientCall.DESTROY, machine_id, context.customer.destroy(machine_id))
    return machine_id


async def _end(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """The workload ends by itself, and its node has seen it."""
    assert machine_id is not None
    await context.customer.signal(machine_id, _SIGNAL)

    async def is_seen() -> bool:
        return bool(exits_of(await context.customer.machine(machine_id)))

    await context.until(is_seen)
    return machine_id


async def _await_archive(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """The node comes to it by itself, within a second or two."""
    assert machine_id is not None

    async def is_taken() -> bool:
        return any(run.flow == ARCHIVE.name for run in await context.customer.runs(machine_id))

    await context.until(is_taken)
    return machine_id


# Of a process group: what a deploy finds, and the calls that bring it to a release, replace it, or are taken back.


async def running_in_group(context: ScenarioContext) -> MachineId:
    """A machine that a deploy finds. Its client changes it no more: what it is from here on, no answer promises."""
    await context.customer.prune()
    config = msgspec.structs.replace(context.samples.sample(), metadata={**PLATFORM, GROUP: _GROUP})
    machine_id = await context.created(config, f"{context.key} before", State.STARTED)
    context.promises.ask(machine_id, ClientCall.UPDATE)
    return machine_id


async def deploy_with_canary(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """After a release command and a canary the machine has another environment."""
    assert machine_id is not None
    definition = _definition(env=NEW_ENV, deploy={"release_command": "exit 0"})
    await context.customer.deploy(definition, SAMPLE, "canary")
    return machine_id


async def deploy_bluegreen(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """Another machine takes its place."""
    assert machine_id is not None
    check = {"type": "tcp", "port": _PORT, "interval": "2s", "timeout": "1s"}
    ordered = context.customer.deploy(_definition(checks={"up": check}), SAMPLE, "bluegreen")
    await context.ask(ClientCall.DESTROY, machine_id, ordered)
    return machine_id


async def deploy_in_vain(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """Of an image that does not start: the machine gets back what it had."""
    assert machine_id is not None
    await context.customer.deploy(_definition(), context.samples.commandless, "rolling")
    return machine_id


def _definition(**sections: Any) -> dict[str, Any]:
    return {"restart": [{"policy": "never"}], "hawker": _OWN, **sections}


class ExpectedExit(ValueObject, frozen=True):
    """An exit that the machine's history must tell: one of these codes, and whether it was asked for."""

    codes: tuple[int, ...]
    """One of them is enough."""
    requested: bool
    """Somebody had asked for the end."""

    def is_told_by(self, code: int, requested: bool) -> bool:
        return code in self.codes and requested == self.requested


_ASKED = ExpectedExit((0, 128 + 2), True)  # the server says goodbye, a sleeper just dies
_BY_ITSELF = ExpectedExit((128 + 10,), False)
_KILLED = ExpectedExit((128 + 9,), True)
_DISCARDED = ExpectedExit((*_ASKED.codes, *_KILLED.codes), True)  # what is in a snapshot hears no signal


class Scenario(ValueObject, frozen=True):
    """`covers`: the places that it is about, by how they begin; of an `undoing` one, those of undos. `undone` and
    `done`: where the machine is when the call took no effect, and when it did. `exits`: what its history then tells.
    `asks` while the call is an order that may be given again when no answer came; `archives` where the node has an
    archive, `backs_up` where it has somewhere to send backups; `contained`: only where machines have control groups;
    `sweeps` where the node looks every second for what is to go."""

    name: str
    """Unique; a report has it."""
    flow: str
    """The flow whose steps its deaths are at."""
    covers: tuple[str, ...]
    before: Setting
    act: Act
    undone: State | None
    done: State
    exits: tuple[ExpectedExit, ...] = ()
    undoing: bool = False
    asks: bool = True
    archives: bool = False
    backs_up: bool = False
    contained: bool = False
    sweeps: bool = False
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables of the node, beside those that each has."""

    def is_about(self, place: str) -> bool:
        return place.startswith(self.covers) and (not self.undoing or ".undo" in place)


_STARTED, _STOPPED, _FAILED, _DESTROYED = State.STARTED, State.STOPPED, State.FAILED, State.DESTROYED
_SUSPENDED = State.SUSPENDED
_PULL = ("pull.", "create.image.")
_DEPLOY = tuple(f"deploy.{step}." for step in ("release_command", "canary", "move", "tidy", "settle"))

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("create", "create", ("create.",), _nothing, _create, None, _STARTED),
    Scenario("create, left off", "create", ("create.rootfs.", "create.launch."), _nothing, _prepare, None, _STOPPED),
    Scenario("create and pull", "pull", _PULL, _no_image, _create, None, _STARTED),
    Scenario("create in vain", "create", ("create.",), _no_image, _create_broken, None, _DESTROYED, undoing=True),
    Scenario("start", "start", ("start.",), _off, _start, _STOPPED, _STARTED),
    Scenario("start in vain", "start", ("start.",), _off_and_broken, _start, _STOPPED, _FAILED, undoing=True),
    Scenario("start again", "start", ("instance.",), _persistent, _end, _STARTED, _STARTED, (_BY_ITSELF,), asks=False),
    Scenario("stop", "stop", ("stop.",), _running, _stop, _STARTED, _STOPPED, (_ASKED,)),
    Scenario("suspend", "suspend", ("suspend.",), _running, _suspend, _STARTED, _SUSPENDED, contained=True),
    Scenario("resume", "resume", ("resume.",), _suspended, _start, _SUSPENDED, _STARTED, contained=True),
    Scenario("discard", "stop", ("stop.",), _suspended, _stop, _SUSPENDED, _STOPPED, (_DISCARDED,),
          contained=True),
    Scenario("memory", "memory", ("memory.",), _running, _set_memory, _STARTED, _STARTED, contained=True),
    Scenario("rest", "rest", ("rest.", "instance."), _running, _end, _STARTED, _STOPPED, (_BY_ITSELF,), asks=False),
    Scenario("restart", "restart", ("restart.",), _running, _restart, _STARTED, _STARTED, (_ASKED,)),
    Scenario("restart in vain", "restart", ("restart.",), _off_and_broken, _restart, _STOPPED, _FAILED, undoing=True),
    Scenario("update", "update", ("update.",), _running, _update, _STARTED, _STARTED, (_ASKED,), env=NEW_ENV),
    Scenario("update in vain", "update", ("update.",), _running, _update_broken, _STARTED, _FAILED, (_ASKED,), True),
    Scenario("destroy", "destroy", ("destroy.",), _running, _destroy, _STARTED, _DESTROYED, (_KILLED,)),
    Scenario("create with a volume", "create", ("create.volume.",), with_free_volume, create_with_volume, None,
          _STARTED, contained=True),
    Scenario("create with a volume in vain", "create", ("create.image.", "create.volume."), with_free_volume,
          create_broken_with_volume, None, _DESTROYED, undoing=True, contained=True),
    Scenario("start with a volume in vain", "start", ("start.volume.",), broken_with_volume, _start, _STOPPED, _FAILED,
          undoing=True, contained=True),
    Scenario("stop with a volume", "stop", ("stop.release.",), running_with_volume, _stop, _STARTED, _STOPPED,
          (_ASKED,), contained=True),
    Scenario("destroy with a volume", "destroy", ("destroy.remove.",), running_with_volume, _destroy, _STARTED,
          _DESTROYED, (_KILLED,), contained=True),
    Scenario("make a volume", "volume_create", ("volume_create.",), _running, make_volume, _STARTED, _STARTED,
          contained=True),
    Scenario("extend a volume", "volume_extend", ("volume_extend.",), off_with_volume, extend_volume, _STOPPED,
          _STOPPED, contained=True),
    Scenario("destroy a volume", "volume_destroy", ("volume_destroy.",), running_beside_volume, destroy_volume,
          _STARTED, _STARTED, contained=True, sweeps=True),
    Scenario("snapshot", "volume_snapshot", ("volume_snapshot.",), running_with_volume, take_snapshot,
          _STARTED, _STARTED, contained=True),
    Scenario("back a volume up", "volume_backup", ("volume_backup.",), running_with_volume, back_up, _STARTED, _STARTED,
          contained=True, backs_up=True),
    Scenario("restore", "volume_restore", ("volume_restore.",), with_snapshot, restore_snapshot,
          _STARTED, _STARTED, contained=True),
    Scenario("restore a backup", "volume_fetch", ("volume_fetch.",), with_backup, restore_backup,
          _STARTED, _STARTED, contained=True, backs_up=True),
    Scenario("fork", "volume_fork", ("volume_fork.",), running_with_volume, fork_volume, _STARTED, _STARTED,
          contained=True),
    Scenario("fork in vain", "volume_fork", ("volume_fork.fill.undo",), off_with_damaged_volume,
          fork_in_vain, _STOPPED, _STOPPED, contained=True),
    Scenario("deploy", "deploy", _DEPLOY, running_in_group, deploy_with_canary, _STARTED, _STARTED, (_ASKED,),
          contained=True, env=NEW_ENV),
    Scenario("deploy bluegreen", "deploy", ("deploy.switch.",), running_in_group, deploy_bluegreen, _STARTED,
          _DESTROYED, (_KILLED,), contained=True),
    Scenario("deploy in vain", "deploy_back", ("deploy_back.",), running_in_group, deploy_in_vain, _STARTED, _STARTED,
          (_ASKED,), contained=True),
    Scenario("archive", "archive", ("archive.",), _destroyed, _await_archive, _DESTROYED, _DESTROYED, (_KILLED,),
          asks=False, archives=True),
)  # fmt: skip


BETWEEN_NODES = frozenset({"move", "deliver", "receive", "arrive", "bring_snapshots", "reclaim", "surrender"})
"""Flows that one node alone never runs: the test of moves between real nodes kills both nodes at their places. Those of
`arrive`, which takes in the memory of a suspended microVM, are met in tests/e2e/test_suspended_moves.py."""

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
    """The places of each scenario that none before it came by, in this flow or in another one that shares the step."""
    seen: set[frozenset[str]] = set()
    alike = {place: places for places in _alike() for place in places}
    fresh = {}
    for name, places in met.items():
        fresh[name] = tuple(place for place in places if alike[place] not in seen)
        seen.update(alike[place] for place in places)
    return fresh


def _alike() -> list[frozenset[str]]:
    """Sets of places of which one must be met."""
    rows = [
        (step, f"{flow.name}.{step.name}")
        for flow in NODE_FLOWS
        if flow.name not in BETWEEN_NODES
        for step in flow.steps
    ]
    alone = {*ELSEWHERE, *(f"{name}.{edge}" for _, name in rows for edge in _EDGES)}
    shared: dict[tuple[object, ...], set[str]] = {}
    for step, name in rows:
        for point in (*step.points, *(_UNDO_EDGES if step.undo is not None else ())):
            shared.setdefault((step.name, step.do, step.undo, point), set()).add(f"{name}.{point}")
    return [*(frozenset({place}) for place in alone), *map(frozenset, shared.values())]
