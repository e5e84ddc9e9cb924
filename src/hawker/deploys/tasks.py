"""Machines beside an app's own: each runs one program, is ordered once for each deploy, and must exit with 0. The
release command and the seed command run before any machine is changed, a machine check against the first machine of its
group. Their output is in the app's logs.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from msgspec.structs import replace

from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import CREATE_MACHINE, CreateMachineRequest, Machine
from hawker.config.machine import Guest, Init, MachineConfig, MachineRestart, StopConfig
from hawker.deploys.health_gates import exit_of
from hawker.deploys.moves import LOOK_S, Moves, SlotFailed, SlotSkipped
from hawker.deploys.plan import CHECK_GROUP, COMMAND_GROUP, WantedRelease, limits_of, seconds_of, stamped
from hawker.flytoml.app_config import SmokeTest
from hawker.flytoml.machines import GROUP, PLATFORM, of_group
from hawker.machine import GONE, State
from hawker.record.deploy import DeployRecord, DeployTask, SlotKind, SlotRecord
from hawker.store.contract import Tx
from hawker.value_object import ValueObject

Work: TypeAlias = Callable[[Moves], Awaitable[None]]

KILLED = 137
_USUAL_GUEST = Guest(cpu_kind="shared", cpus=2, memory_mb=512)
_COMMAND_S = 300.0
_BESIDE = -1
"""The number of what is no slot."""


class _Place(ValueObject, frozen=True):
    """A task: its words for people, its place in the deploy's record and in its order's key, its machine's group."""

    words: str
    key: str
    group: str
    index: int | None = None

    def of(self, record: DeployRecord) -> DeployTask | None:
        return getattr(record, self.key) if self.index is None else record.checks[self.index]

    def fields(self, record: DeployRecord, task: DeployTask) -> dict[str, Any]:
        """The fields of the deploy's record once it has the task so."""
        if self.index is None:
            return {self.key: task}
        return {"checks": (*record.checks[: self.index], task, *record.checks[self.index + 1 :])}


_COMMAND = _Place("the release command", "command", COMMAND_GROUP)
_SEED = _Place("the seed command", "seed", COMMAND_GROUP)


def _check_place(index: int) -> _Place:
    return _Place(f"machine check {index + 1}", f"check-{index}", CHECK_GROUP, index)


# As an app's file says.


def command_of(wanted: WantedRelease, image: str) -> DeployTask | None:
    """The release command, if there is one."""
    given = wanted.config.deploy
    if given is None or not given.release_command:
        return None
    return _command(wanted, image, given.release_command, {"RELEASE_COMMAND": "1"})


def seed_of(wanted: WantedRelease, image: str) -> DeployTask | None:
    """The seed command, if there is one; for an app that has no complete release yet."""
    given = wanted.config.deploy
    if given is None or not given.seed_command:
        return None
    return _command(wanted, image, given.seed_command, {"SEED_COMMAND": "1"})


def _command(wanted: WantedRelease, image: str, command: tuple[str, ...], env: Mapping[str, str]) -> DeployTask:
    """A machine with the new image and env, without volumes, services, checks or a name."""
    given, config = wanted.config.deploy, wanted.configs[wanted.config.default_group]
    made = MachineConfig(
        image=image,
        env={**(config.env or {}), **env, "FLY_PROCESS_GROUP": COMMAND_GROUP},
        init=replace(config.init or Init(), cmd=command, exec=None),
        guest=_command_guest(wanted),
        metadata={**PLATFORM, GROUP: COMMAND_GROUP},
        files=config.files,
        restart=MachineRestart(policy="no"),
        stop_config=config.stop_config,
    )
    timeout_s = seconds_of(given.release_command_timeout if given else None, _COMMAND_S)
    return DeployTask(config=stamped(wanted, made), region=wanted.config.primary_region, timeout_s=timeout_s)


def machine_checks_of(wanted: WantedRelease, image: str) -> tuple[DeployTask, ...]:
    """The machine checks of each group: of the file, then of the group's services. A check's command replaces all of
    its image's, unless it has an entrypoint, too."""
    config = wanted.config
    sections = [each for each in (config.http_service, *(config.services or ())) if each is not None]
    return tuple(
        _machine_check(wanted, group, check, image)
        for group in config.groups
        for check in (
            *(config.machine_checks or ()),
            *(check for each in sections if of_group(each, group, config) for check in each.machine_checks or ()),
        )
    )


def _machine_check(wanted: WantedRelease, group: str, check: SmokeTest, image: str) -> DeployTask:
    config = wanted.configs[group]
    whole = (
        Init(exec=check.command) if check.entrypoint is None else Init(cmd=check.command, entrypoint=check.entrypoint)
    )
    made = MachineConfig(
        image=check.image or image,
        env={**(config.env or {}), "FLY_PROCESS_GROUP": CHECK_GROUP},
        init=whole,
        guest=config.guest or _USUAL_GUEST,
        metadata={**PLATFORM, GROUP: CHECK_GROUP},
        files=config.files,
        restart=MachineRestart(policy="no"),
        stop_config=StopConfig(signal=check.kill_signal, timeout=check.kill_timeout),
    )
    timeout_s = limits_of(wanted.config).wait_s
    return DeployTask(config=stamped(wanted, made), region=None, timeout_s=timeout_s, group=group)


def _command_guest(wanted: WantedRelease) -> Guest:
    vm = wanted.config.deploy.release_command_vm if wanted.config.deploy else None
    own = wanted.configs[wanted.config.default_group].guest
    if vm is None:
        return own or _USUAL_GUEST
    usual = own or _USUAL_GUEST
    return Guest(
        cpu_kind=vm.cpu_kind or usual.cpu_kind,
        cpus=vm.cpus or usual.cpus,
        memory_mb=vm.memory_mib or usual.memory_mb,
    )


# While a deploy runs.


async def run_commands(deploy: Moves) -> None:
    """The release command, and after it the seed command. Raises `SlotFailed` unless each exits with 0."""
    await deploy.until_resumed()
    for place in (_COMMAND, _SEED):
        await _run(deploy, place)


async def run_machine_checks(deploy: Moves, slot: SlotRecord) -> None:
    """Runs the machine checks of the slot's group, one after the other, against its machine. Raises `SlotFailed` unless
    each exits with 0."""
    for index, task in enumerate(deploy.record.checks):
        if task.group == slot.group and task.exit_code != 0:
            stage, tested = deploy.record.stage, await deploy.again(slot, lambda: deploy.get(slot))
            await _run(deploy, _check_place(index), against=tested)
            await deploy.say(stage)


async def remove_tasks(deploy: Moves) -> None:
    """Removes the machines for tasks that a deploy that does not go forward left running beside its machines."""
    record = deploy.record
    for place in (_COMMAND, _SEED, *(_check_place(index) for index in range(len(record.checks)))):
        task = place.of(record)
        if task is not None and task.machine and task.exit_code is None:
            with suppress(SlotFailed):
                await _remove(deploy, _slot(place, task, deploy.clock.now()))


async def _run(deploy: Moves, place: _Place, against: Machine | None = None) -> None:
    """What became of it is written down before its machine goes."""
    task = place.of(deploy.record)
    if task is None:
        return
    if task.exit_code is None:
        await deploy.say(f"{place.words} runs")
        if not task.machine:
            task = await _ordered(deploy, place, task, against)
            deploy.reach("ordered")
        exit_code = await _ended(deploy, place, task)
        task = await _noted(deploy, place, replace(task, exit_code=exit_code))
    slot = _slot(place, task, deploy.clock.now())
    await _remove(deploy, slot)
    if task.exit_code:
        said = f"timed out after {task.timeout_s:g} s" if task.exit_code == KILLED else "failed"
        raise SlotFailed(slot, f"{place.words} {said}, with status {task.exit_code}: see the app's logs")


async def _ordered(deploy: Moves, place: _Place, task: DeployTask, against: Machine | None) -> DeployTask:
    """A machine beside the slots, which is ordered once."""
    config, region = task.config, task.region
    if against is not None:
        config, region = _told(config, against), against.region

    async def order() -> Machine:
        await deploy.term.check()
        return await deploy.caller.call(
            CREATE_MACHINE,
            params=AppParams(app_name=deploy.app),
            body=CreateMachineRequest(config=config, region=region),
            idempotency_key=f"deploy-{deploy.version}-{place.key}-{deploy.record.began_at:.3f}",
        )

    made = await deploy.again(_slot(place, task, deploy.clock.now()), order)
    return await _noted(deploy, place, replace(task, machine=made.id))


def _told(config: MachineConfig, tested: Machine) -> MachineConfig:
    return replace(config, env={**(config.env or {}), "FLY_TEST_MACHINE_IP": tested.private_ip})


async def _ended(deploy: Moves, place: _Place, task: DeployTask) -> int:
    """Its exit status. Raises `SlotFailed` when that will never be known."""
    slot, deadline = _slot(place, task, deploy.clock.now()), deploy.clock.monotonic() + task.timeout_s
    while True:
        try:
            machine = await deploy.again(slot, lambda: deploy.get(slot))
        except SlotSkipped as lost:
            raise SlotFailed(slot, f"{place.words}: its outcome is not known: {lost.text}") from lost
        found = _exit_status(machine)
        if found is not None:
            return found
        if machine.state in GONE:
            raise SlotFailed(slot, f"{place.words}: its outcome is not known: its machine is gone")
        if machine.state is State.FAILED:
            why = next((event.error for event in machine.events if event.error), "its machine did not start")
            raise SlotFailed(slot, f"{place.words} was not run: {why}")
        if deploy.clock.monotonic() >= deadline:
            return KILLED
        await deploy.clock.sleep(LOOK_S)


def _exit_status(machine: Machine) -> int | None:
    for event in machine.events:
        ended = exit_of(event)
        if ended is not None:
            return ended.exit_code or (1 if ended.reason or ended.fault else 0)
    return None


async def _remove(deploy: Moves, slot: SlotRecord) -> None:
    with suppress(SlotSkipped):
        await deploy.again(slot, lambda: deploy.delete(slot))


async def _noted(deploy: Moves, place: _Place, task: DeployTask) -> DeployTask:
    table = deploy.table

    def apply(tx: Tx) -> None:
        fields = place.fields(table.find(tx, deploy.app, deploy.version), task)
        table.change(tx, deploy.app, deploy.version, **fields)

    await table.store.write(apply)
    await deploy.term.keep()
    return task


def _slot(place: _Place, task: DeployTask, now: float) -> SlotRecord:
    return SlotRecord(
        number=_BESIDE,
        kind=SlotKind.UPDATE if task.machine else SlotKind.CREATE,
        group=place.group,
        region=task.region,
        machine=task.machine,
        at=now,
    )
