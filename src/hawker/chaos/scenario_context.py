"""What a scenario is given: a client of one app, the machines and the image that it may order, and one life of the node
as that client sees it.
"""

import gzip
import io
import tarfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio.to_thread import run_sync

from hawker.api.caller import Caller
from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.deploy import CREATE_DEPLOY, CreateDeployRequest, Strategy
from hawker.api.contract.exec import EXEC_MACHINE, ExecRequest
from hawker.api.contract.image import PRUNE_IMAGES, PULL_IMAGE, PruneRequest, PullRequest
from hawker.api.contract.machine import (
    CREATE_MACHINE,
    DELETE_MACHINE,
    GET_MACHINE,
    LIST_MACHINES,
    UPDATE_MACHINE,
    CreateMachineRequest,
    DeleteMachineQuery,
    ExitEvent,
    Machine,
    MachineParams,
    SignalRequest,
    UpdateMachineRequest,
    WaitState,
)
from hawker.api.contract.machine_operation import (
    RESTART_MACHINE,
    SET_MEMORY,
    SIGNAL_MACHINE,
    START_MACHINE,
    STOP_MACHINE,
    SUSPEND_MACHINE,
    WAIT_MACHINE,
    SetMemoryRequest,
    WaitQuery,
)
from hawker.api.contract.run import LIST_RUNS, ListRunsQuery, RunSummary
from hawker.api.contract.volume import (
    CREATE_VOLUME,
    DELETE_VOLUME,
    EXTEND_VOLUME,
    LIST_VOLUMES,
    CreateVolumeRequest,
    ExtendVolumeRequest,
    Volume,
    VolumeParams,
)
from hawker.chaos.guests import CONTAINED
from hawker.clock import Clock
from hawker.config import Init, MachineConfig, MachineRestart
from hawker.config.machine import Mount
from hawker.errors import Conflict, DeadlineExceeded, NameTaken, NotFound
from hawker.guest import hello_path
from hawker.history.archivist import ARCHIVE
from hawker.ids import MachineId, VolumeId
from hawker.image.manifest import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, host_platform
from hawker.image.reference import digest_of, hex_of
from hawker.machine import State
from hawker.proof.promises import ClientCall, Promises
from hawker.value_object import ValueObject

_WAIT_S = 55.0


class ScenarioClient(ValueObject, frozen=True):
    client: Caller
    app: str
    """The app whose machines it has."""

    async def open(self) -> None:
        """Safe to repeat."""
        with suppress(NameTaken):
            await self.client.call(CREATE_APP, body=CreateAppRequest(name=self.app))

    # Orders: each returns once it is acknowledged.

    async def create(self, config: MachineConfig, key: str, *, launch: bool = True) -> MachineId:
        body = CreateMachineRequest(config=config, skip_launch=not launch)
        params = AppParams(app_name=self.app)
        made = await self.client.call(CREATE_MACHINE, params=params, body=body, idempotency_key=key)
        return MachineId(made.id)

    async def start(self, machine_id: MachineId) -> None:
        await self.client.call(START_MACHINE, params=self._params(machine_id))

    async def stop(self, machine_id: MachineId) -> None:
        await self.client.call(STOP_MACHINE, params=self._params(machine_id))

    async def suspend(self, machine_id: MachineId) -> None:
        await self.client.call(SUSPEND_MACHINE, params=self._params(machine_id))

    async def set_memory(self, machine_id: MachineId, limit_mib: int) -> None:
        await self.client.call(SET_MEMORY, params=self._params(machine_id), body=SetMemoryRequest(limit_mb=limit_mib))

    async def restart(self, machine_id: MachineId) -> None:
        await self.client.call(RESTART_MACHINE, params=self._params(machine_id))

    async def update(self, machine_id: MachineId, config: MachineConfig) -> None:
        await self.client.call(
            UPDATE_MACHINE, params=self._params(machine_id), body=UpdateMachineRequest(config=config)
        )

    async def destroy(self, machine_id: MachineId) -> None:
        query = DeleteMachineQuery(force=True)
        await self.client.call(DELETE_MACHINE, params=self._params(machine_id), query=query)

    async def signal(self, machine_id: MachineId, name: str) -> None:
        await self.client.call(SIGNAL_MACHINE, params=self._params(machine_id), body=SignalRequest(signal=name))

    async def volume(self, name: str, size_gb: int = 1) -> VolumeId:
        """The one of this name, made if it is not there. Raises `Fault` when it cannot be made."""
        params = AppParams(app_name=self.app)
        for volume in await self.volumes(name):
            if volume.state in ("creating", "created", "extending"):
                return VolumeId(volume.id)
        body = CreateVolumeRequest(name=name, size_gb=size_gb, encrypted=False, auto_backup_enabled=False)
        return VolumeId((await self.client.call(CREATE_VOLUME, params=params, body=body)).id)

    async def volumes(self, name: str) -> list[Volume]:
        """Those of this name, also when they are on their way out."""
        listed = await self.client.call(LIST_VOLUMES, params=AppParams(app_name=self.app))
        return [volume for volume in listed.items if volume.name == name]

    async def delete_volumes(self, name: str) -> None:
        """Safe to repeat."""
        for volume in await self.volumes(name):
            with suppress(NotFound):
                params = VolumeParams(app_name=self.app, volume_id=volume.id)
                await self.client.call(DELETE_VOLUME, params=params)

    async def extend(self, volume_id: VolumeId, size_gb: int) -> None:
        params = VolumeParams(app_name=self.app, volume_id=volume_id)
        await self.client.call(EXTEND_VOLUME, params=params, body=ExtendVolumeRequest(size_gb=size_gb))

    async def deploy(self, definition: dict[str, Any], image: str, strategy: Strategy) -> None:
        """Unless the newest deploy is one under way, which a repeated call would be refused for."""
        body = CreateDeployRequest(definition=definition, image=image, strategy=strategy)
        with suppress(Conflict):
            await self.client.call(CREATE_DEPLOY, params=AppParams(app_name=self.app), body=body)

    # Around them.

    async def reaches(self, machine_id: MachineId, state: State) -> None:
        """Wait for it. Raises `DeadlineExceeded`."""
        query = WaitQuery(state=(WaitState(state.value),), timeout=_WAIT_S)
        await self.client.call(WAIT_MACHINE, params=self._params(machine_id), query=query)

    async def pull(self, reference: str) -> None:
        async with self.client.stream(PULL_IMAGE, body=PullRequest(reference=reference)) as events:
            async for _ in events:
                pass

    async def prune(self) -> None:
        await self.client.call(PRUNE_IMAGES, body=PruneRequest())

    async def machines(self) -> tuple[Machine, ...]:
        return tuple((await self.client.call(LIST_MACHINES, params=AppParams(app_name=self.app))).items)

    async def machine(self, machine_id: MachineId) -> Machine:
        return await self.client.call(GET_MACHINE, params=self._params(machine_id))

    async def runs(self, machine_id: MachineId) -> tuple[RunSummary, ...]:
        """On the machine, newest first; then on its history."""
        on_it = (await self.client.call(LIST_RUNS, query=ListRunsQuery(resource_id=machine_id))).runs
        archived = (await self.client.call(LIST_RUNS, query=ListRunsQuery(flow=ARCHIVE.name))).runs
        return (*on_it, *(run for run in archived if run.resource_id == machine_id))

    async def said(self, machine_id: MachineId, *command: str) -> str:
        """What a command in the machine writes to stdout."""
        body = ExecRequest(command=command, timeout=int(_WAIT_S))
        return (await self.client.call(EXEC_MACHINE, params=self._params(machine_id), body=body)).stdout

    def _params(self, machine_id: MachineId) -> MachineParams:
        return MachineParams(app_name=self.app, machine_id=machine_id)


def exits_of(machine: Machine) -> list[ExitEvent]:
    """Oldest first."""
    requests = [event.request for event in reversed(machine.events) if event.type == "exit"]
    return [request.exit_event for request in requests if request is not None]


PROGRAM = "/bin/hello"


# The image that scenarios need beside the sample image: the same program, and no command. It is an OCI layout on
# this host.


def write_commandless_image(directory: Path) -> str:
    """Gives the reference."""
    layer, platform = _layer(), host_platform()
    rootfs = {"type": "layers", "diff_ids": [digest_of(layer)]}
    config = _json({"architecture": platform.architecture, "os": platform.os, "config": {}, "rootfs": rootfs})
    packed = gzip.compress(layer, mtime=0)
    pointers = [_pointer(OCI_CONFIG, config), _pointer(f"{OCI_LAYER}+gzip", packed)]
    manifest = _json({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": pointers[0], "layers": pointers[1:]})
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for content in (config, packed, manifest):
        (blobs / hex_of(digest_of(content))).write_bytes(content)
    (directory / "index.json").write_bytes(_json({"schemaVersion": 2, "manifests": [_pointer(OCI_MANIFEST, manifest)]}))
    (directory / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
    return f"oci:{directory}"


def _layer() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        program = hello_path().read_bytes()
        file = tarfile.TarInfo(PROGRAM.removeprefix("/"))
        file.size, file.mode = len(program), 0o755
        archive.addfile(file, io.BytesIO(program))
    return buffer.getvalue()


def _pointer(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)


APP = "scenes"
NEW_ENV = {"VERSION": "new"}
SAMPLE = "hawker/hello"
_LOOK_EVERY_S = 0.02
_SEEN_WITHIN_S = 90.0
_AGAIN, _NOT_AGAIN = MachineRestart(policy="always"), MachineRestart(policy="no")


def named(key: str) -> str:
    """The key in the form that the name of a volume may have."""
    return key.replace(" ", "-")


class SampleMachines(ValueObject, frozen=True):
    """What may be ordered: `commandless` is an image that names no command. The process driver runs the sample program
    as it is on the host, where it asks for nothing. `archive` is where histories go, in scenarios that have one;
    backups of volumes go beside it."""

    driver: str
    """The name of the one that runs them."""
    commandless: str
    archive: Path

    @property
    def contained(self) -> bool:
        return self.driver in CONTAINED

    @property
    def backups(self) -> Path:
        return self.archive.with_name("backups")

    def backup_flags(self) -> tuple[str, ...]:
        """For a daemon, with the passphrase in its file."""
        passphrase = self.archive.with_name("passphrase")
        passphrase.write_text("only for this trial\n")
        return ("--backup-url", str(self.backups), "--backup-passphrase-file", str(passphrase))

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


class ScenarioContext(ValueObject, frozen=True):
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
