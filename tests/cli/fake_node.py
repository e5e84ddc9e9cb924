"""A node without machines: it keeps what it is told, and answers as a test decides. Served over real HTTP."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import msgspec

from hawker.api.contract.app import App, AppList, CreateAppRequest, Organization
from hawker.api.contract.app_file import AppFile
from hawker.api.contract.body import Ok
from hawker.api.contract.exec import Exited, Input, ListenSocket, MachineStats, Output, ProcessStat, TerminalRequest
from hawker.api.contract.image import ImageInfo, ImageList, PruneAnswer, PullEvent
from hawker.api.contract.machine import (
    CheckStatus,
    CreateMachineRequest,
    EventRequest,
    ExitEvent,
    ImageRef,
    Machine,
    MachineEvent,
    MachineVersion,
    StartAnswer,
    WaitAnswer,
)
from hawker.api.contract.node import Amounts, DriverInfo, Health, HostCapacity, LogChunk, NodeInfo
from hawker.api.contract.port import PortData, PortEnd, PortOpened, PortTaken, PublishedPortState
from hawker.api.contract.run import MachineHistory, Run, RunList, RunState, RunStep
from hawker.api.contract.secret import AppSecret, AppSecrets, SecretsUpdated
from hawker.api.contract.token import RevokedToken, RevokedTokens
from hawker.api.handlers import Handlers, SocketChannel
from hawker.api.route import AnyRoute, Call, Page, Socket, Stream, Unary, Upload
from hawker.api.routes import ROUTES
from hawker.config import MachineConfig, with_guest
from hawker.errors import DeadlineExceeded, HawkerError, NameTaken, NotFound, NotServed, WrongState
from hawker.machine import State
from tests.cli.fake_addresses import FakeAddresses
from tests.cli.fake_catalog import FakeCatalog
from tests.cli.fake_certificates import FakeCertificates
from tests.cli.fake_command import FakeCommand
from tests.cli.fake_fleet import FakeFleet
from tests.cli.fake_memory import FakeMemory
from tests.cli.fake_moves import FakeMoves
from tests.cli.fake_releases import FakeReleases
from tests.cli.fake_volumes import FakeVolumes

TOKEN = "secret"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DIGEST = "sha256:" + "ab" * 32


def event(
    kind: str, status: str, source: str = "flyd", request: EventRequest | None = None, error: str = ""
) -> MachineEvent:
    at_ms = 1_700_000_000_000
    return MachineEvent(
        id="01E", type=kind, status=status, source=source, timestamp=at_ms, request=request, error=error
    )


def exit_event(
    code: int,
    *,
    signal: int = -1,
    oom: bool = False,
    reason: str = "",
    requested: bool = False,
    restarting: bool = False,
) -> MachineEvent:
    ended = ExitEvent(
        exit_code=code,
        guest_exit_code=code,
        guest_signal=signal,
        oom_killed=oom,
        requested_stop=requested,
        restarting=restarting,
        signal=signal,
        exited_at=AT,
        reason=reason,
    )
    return event("exit", "stopped", request=EventRequest(exit_event=ended, restart_count=0))


LAUNCHED = event("launch", "created", "user")
STARTED = event("start", "started")


def machine(machine_id: str = "3d8f0000000001", **fields: Any) -> Machine:
    whole: dict[str, Any] = {
        "id": machine_id,
        "name": f"name-{machine_id[-1]}",
        "state": State.STARTED,
        "region": "local",
        "image_ref": ImageRef(registry="registry.local", repository="web", tag="3", digest=DIGEST),
        "instance_id": "01V1",
        "version": "01V1",
        "private_ip": "fdaa::3",
        "created_at": AT,
        "updated_at": AT,
        "host": "0badcafe",
        "host_status": "ok",
        "config": with_guest(MachineConfig(image="registry.local/web:3")),
        "events": (STARTED, LAUNCHED),
    }
    return Machine(**{**whole, **fields})


RUN = Run(
    id="01RUN",
    flow="create",
    resource_kind="machine",
    resource_id="3d8f0000000001",
    state=RunState.DONE,
    created_at=AT,
    ended_at=AT.replace(second=6),
    steps=(RunStep(name="rootfs", state="done", attempts=1, started_at=AT, ended_at=AT.replace(microsecond=37_100)),),
)


class FakeNode(
    FakeMoves, FakeReleases, FakeCatalog, FakeFleet, FakeVolumes, FakeAddresses, FakeCertificates, FakeMemory
):
    """`apps` holds machines by app; `fates` what a machine becomes when it is ordered or started; `failures` what a
    call is answered with instead, by the route's name; `calls` what came in, by the route's name. A wait goes on for
    `patience_s`, or until a machine is stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.apps: dict[str, dict[str, Machine]] = {}
        self.fate: tuple[State, tuple[MachineEvent, ...]] = (State.STARTED, (STARTED, LAUNCHED))
        self.failures: dict[str, HawkerError] = {}
        self.calls: dict[str, list[Call[Any, Any, Any]]] = {}
        self.images: tuple[ImageInfo, ...] = ()
        self.pull: tuple[PullEvent, ...] = (PullEvent(stage="done", digest=DIGEST),)
        self.chunks: tuple[LogChunk, ...] = ()
        self.ports: tuple[PublishedPortState, ...] = ()
        self.runs = RunList(runs=(RUN,))
        self.histories: dict[str, MachineHistory] = {}
        self.uploaded = self.copied = b""
        self.copy_error = ""
        self.has_files = False
        self.too_late: int | None = None
        self.patience_s = 0.0
        self.stopped = anyio.Event()

    def add(self, app: str, *machines: Machine) -> None:
        self.apps.setdefault(app, {}).update({each.id: each for each in machines})

    def call(self, name: str) -> Call[Any, Any, Any]:
        """The only one of that name."""
        (found,) = self.calls[name]
        return found

    def handlers(self) -> Handlers:
        handlers = Handlers()
        for route in ROUTES:
            self._bind(handlers, route)
        return handlers

    def _bind(self, handlers: Handlers, route: AnyRoute) -> None:
        answer = getattr(self, f"_{route.name}", None)

        async def unary(call: Call[Any, Any, Any], *more: Any) -> Any:
            self.calls.setdefault(route.name, []).append(call)
            if route.name in self.failures:
                raise self.failures[route.name]
            if answer is None:
                raise NotServed(f"the fake has no {route.name}")
            return await answer(call, *more)

        match route:
            case Unary():
                handlers.on(route, unary)
            case Stream():
                handlers.stream(route, unary)
            case Upload():
                handlers.upload(route, unary)
            case Socket():
                handlers.socket(route, unary)

    # secrets

    async def _update_secrets(self, call: Call[Any, Any, Any]) -> SecretsUpdated:
        return SecretsUpdated(secrets=(), version=7, Version=7)

    async def _list_secrets(self, call: Call[Any, Any, Any]) -> AppSecrets:
        value = "hush" if call.query.show_secrets else None
        return AppSecrets(secrets=(AppSecret(name="KEY", digest="0a", created_at=AT, updated_at=AT, value=value),))

    # tokens

    async def _revoke_token(self, call: Call[Any, Any, Any]) -> RevokedToken:
        return RevokedToken(token_id=call.body.token_id or "of the token", revoked_at=AT, revoked_by="root")

    async def _list_revoked(self, call: Call[Any, Any, Any]) -> RevokedTokens:
        return RevokedTokens(tokens=(RevokedToken(token_id="0a", revoked_at=AT, revoked_by="root", note="lost"),))

    # apps

    async def _list_apps(self, call: Call[Any, Any, Any]) -> AppList:
        return AppList(total_apps=len(self.apps), apps=tuple(map(self._app, self.apps)))

    async def _create_app(self, call: Call[Any, Any, CreateAppRequest]) -> App:
        if (name := call.body.name or "") in self.apps:
            raise NameTaken("Validation failed: Name has already been taken")
        self.apps[name] = {}
        return self._app(name)

    async def _get_app(self, call: Call[Any, Any, Any]) -> App:
        self._machines(call)
        return self._app(call.params.app_name)

    async def _delete_app(self, call: Call[Any, Any, Any]) -> None:
        self._machines(call)
        del self.apps[call.params.app_name]

    def _app(self, name: str) -> App:
        return App(
            id=name,
            internal_numeric_id=1,
            name=name,
            network="default",
            status="deployed",
            machine_count=len(self.apps[name]),
            volume_count=0,
            organization=Organization(name="personal", slug="personal"),
            created_at=1_700_000_000_000,
        )

    # machines

    def _machines(self, call: Call[Any, Any, Any]) -> dict[str, Machine]:
        if call.params.app_name not in self.apps:
            raise NotFound(f"app {call.params.app_name!r} not found")
        return self.apps[call.params.app_name]

    def _machine(self, call: Call[Any, Any, Any]) -> Machine:
        found = self._machines(call).get(call.params.machine_id)
        if found is None:
            raise NotFound("machine not found")
        return found

    def _become(self, call: Call[Any, Any, Any], **fields: Any) -> Machine:
        changed = msgspec.structs.replace(self._machine(call), **fields)
        self._machines(call)[changed.id] = changed
        return changed

    async def _list_machines(self, call: Call[Any, Any, Any]) -> Page[Machine]:
        call.metadata.missing_regions, call.metadata.missing_nodes = self.missing_regions, self.missing_nodes
        return Page(tuple(self._machines(call).values()))

    async def _get_machine(self, call: Call[Any, Any, Any]) -> Machine:
        return self._machine(call)

    async def _create_machine(self, call: Call[Any, Any, CreateMachineRequest]) -> Machine:
        state, events = self.fate
        made = machine(
            "3d8f00000000ff", name=call.body.name or "fresh", state=state, events=events, config=call.body.config
        )
        self.add(call.params.app_name, made)
        return msgspec.structs.replace(made, state=State.CREATED, events=(LAUNCHED,))

    async def _update_machine(self, call: Call[Any, Any, Any]) -> Machine:
        state, events = (State.STOPPED, ()) if call.body.skip_launch else self.fate
        return self._become(call, config=call.body.config, version="01V2", state=state, events=events)

    async def _delete_machine(self, call: Call[Any, Any, Any]) -> Ok:
        if self._machine(call).state is State.STARTED and not call.query.force:
            raise WrongState("unable to destroy machine, not currently stopped")
        self._become(call, state=State.DESTROYED)
        return Ok(ok=True)

    async def _start_machine(self, call: Call[Any, Any, Any]) -> StartAnswer:
        before = self._machine(call).state
        state, events = self.fate
        self._become(call, state=state, events=events)
        return StartAnswer(previous_state=before, migrated=False, new_host="")

    async def _restart_machine(self, call: Call[Any, Any, Any]) -> Ok:
        await self._start_machine(call)
        return Ok(ok=True)

    async def _stop_machine(self, call: Call[Any, Any, Any]) -> Ok:
        self._become(call, state=State.STOPPED, events=(exit_event(0, requested=True), *self._machine(call).events))
        self.stopped.set()
        return Ok(ok=True)

    async def _signal_machine(self, call: Call[Any, Any, Any]) -> Ok:
        self._machine(call)
        return Ok(ok=True)

    _cordon_machine = _uncordon_machine = _rename_machine = _signal_machine

    async def _wait_machine(self, call: Call[Any, Any, Any]) -> WaitAnswer:
        found = self._machine(call)
        if found.state not in call.query.state and self.patience_s:
            with anyio.move_on_after(self.patience_s):
                await self.stopped.wait()
            found = self._machine(call)
        if found.state not in call.query.state:
            raise DeadlineExceeded(f"machine failed to reach desired state, currently {found.state}")
        return WaitAnswer(ok=True, state=found.state, version=found.version, event_id="01E")

    async def _list_events(self, call: Call[Any, Any, Any]) -> tuple[MachineEvent, ...]:
        return self._machine(call).events[: call.query.limit]

    async def _list_versions(self, call: Call[Any, Any, Any]) -> tuple[MachineVersion, ...]:
        found = self._machine(call)
        return (MachineVersion(version=found.version, user_config=found.config or MachineConfig()),)

    async def _machine_history(self, call: Call[Any, Any, Any]) -> MachineHistory:
        if call.params.machine_id not in self.histories:
            raise NotFound("machine not found")
        return self.histories[call.params.machine_id]

    async def _list_metadata(self, call: Call[Any, Any, Any]) -> dict[str, str]:
        config = self._machine(call).config
        return (config.metadata if config else None) or {}

    async def _update_metadata(self, call: Call[Any, Any, Any]) -> None:
        self._machine(call)

    # inside machines

    async def _machine_logs(self, call: Call[Any, Any, Any]) -> AsyncIterator[LogChunk]:
        self._machine(call)
        return self._log_chunks(-1 if call.query.after is None else call.query.after, call.query.follow)

    async def _log_chunks(self, after: int, follow: bool) -> AsyncIterator[LogChunk]:
        """One that is followed shows all but the last chunk, as if that came at the very end."""
        for chunk in self.chunks[:-1] if follow else self.chunks:
            if chunk.position > after:
                yield chunk

    async def _list_processes(self, call: Call[Any, Any, Any]) -> tuple[ProcessStat, ...]:
        self._machine(call)
        sockets = (ListenSocket(proto="tcp", address="[::]:80"),)
        return (
            ProcessStat(
                pid=7, stime=0, rtime=61, command="web", directory="/", cpu=3, rss=2048, listen_sockets=sockets
            ),
        )

    async def _machine_stats(self, call: Call[Any, Any, Any]) -> MachineStats:
        """Half a second of cpu since the last look."""
        self._machine(call)
        looks = len(self.calls["machine_stats"])
        return MachineStats(
            at=AT + timedelta(seconds=looks),
            cpus=1,
            cpu_seconds=looks / 2,
            throttled_seconds=None,
            memory_bytes=3 << 20,
            working_set_bytes=2 << 20,
            memory_limit_bytes=256 << 20,
            oom_kills=0,
            pids=3,
            disk_read_bytes=None,
            disk_written_bytes=None,
            network_received_bytes=1024,
            network_sent_bytes=2048,
        )

    async def _machine_attach(self, call: Call[Any, Any, Any], channel: SocketChannel[Any, Any]) -> None:
        """Its process echoes what is typed, and ends with it."""
        status = 5
        if self.too_late is not None:
            status = self.too_late
        else:
            await FakeCommand(channel, TerminalRequest(command=("cat",))).run()
        self._become(call, state=State.STOPPED, events=(exit_event(status), *self._machine(call).events))
        if self.too_late is not None:
            raise WrongState("the machine has ended")

    async def _machine_copy(self, call: Call[Any, Any, Any], channel: SocketChannel[Any, Any]) -> None:
        """Keeps what comes in, and gives it out again."""
        self._machine(call)
        if call.body.direction == "out":
            await channel.send(Output(stream=1, data=self.copied))
        while call.body.direction == "in" and isinstance(message := await channel.receive(), Input):
            self.copied += message.data
        if self.copy_error:
            await channel.send(Output(stream=2, data=self.copy_error.encode()))
        await channel.send(Exited(exit_code=1 if self.copy_error else 0, signal=0))

    async def _machine_terminal(self, call: Call[Any, Any, Any], channel: SocketChannel[Any, Any]) -> None:
        await FakeCommand(channel, call.body).run()

    async def _machine_port(self, call: Call[Any, Any, Any], channel: SocketChannel[Any, Any]) -> None:
        """Echoes what comes, and the end, too."""
        self._machine(call)
        await channel.send(PortOpened(address="fdaa::3"))
        while not isinstance(message := await channel.receive(), PortEnd | None):
            if isinstance(message, PortData):
                await channel.send(message)
                await channel.send(PortTaken(count=len(message.data)))
        await channel.send(PortEnd())

    async def _list_published_ports(self, call: Call[Any, Any, Any]) -> tuple[PublishedPortState, ...]:
        return self.ports

    # images, runs, the node

    async def _list_images(self, call: Call[Any, Any, Any]) -> ImageList:
        return ImageList(images=self.images)

    async def _pull_image(self, call: Call[Any, Any, Any]) -> AsyncIterator[PullEvent]:
        return self._pull_events()

    _push_image = _pull_image

    async def _pull_events(self) -> AsyncIterator[PullEvent]:
        for each in self.pull:
            yield each

    async def _prune_images(self, call: Call[Any, Any, Any]) -> PruneAnswer:
        return PruneAnswer(removed=(DIGEST,), freed_bytes=3 * 1024 * 1024)

    async def _import_image(self, call: Call[Any, Any, Any], data: AsyncIterator[bytes]) -> ImageInfo:
        self.runs = RunList(runs=(RUN,))
        self.uploaded = b"".join([chunk async for chunk in data])
        return image(call.query.reference or "unnamed")

    async def _get_app_file(self, call: Call[Any, Any, Any]) -> AppFile:
        if not self.has_files:
            raise NotFound("it was not uploaded")
        return AppFile(digest=call.params.digest, size=1)

    async def _put_app_file(self, call: Call[Any, Any, Any], data: AsyncIterator[bytes]) -> AppFile:
        assert "create_machine" not in self.calls, "files come before the order"
        self.uploaded = b"".join([chunk async for chunk in data])
        return AppFile(digest=call.params.digest, size=call.query.size)

    async def _list_runs(self, call: Call[Any, Any, Any]) -> RunList:
        return self.runs

    async def _get_run(self, call: Call[Any, Any, Any]) -> Run:
        if call.params.run_id != RUN.id:
            raise NotFound(f"run {call.params.run_id} not found")
        return RUN

    _retry_run = _abort_run = _get_run

    async def _health(self, call: Call[Any, Any, Any]) -> Health:
        return Health(status="ok", version="9.9.9")

    async def _node_info(self, call: Call[Any, Any, Any]) -> NodeInfo:
        return NodeInfo(
            id="0badcafe",
            region="local",
            version="9.9.9",
            driver="container",
            started_at=AT,
            capacity=HostCapacity(cpus=4, memory_mb=8192, disk_mb=20_000, shared_cpu_ratio=8.0, gpus={"a10": 2}),
            used=Amounts(shared_cpus=3, performance_cpus=1, memory_mb=1024, disk_mb=512, gpus={"a10": 1}),
            machines={"started": 2, "stopped": 1},
            drivers=(DriverInfo(name="container", usable=True, reason="crun is there", chosen=True),),
        )


def image(reference: str, machines: int = 1) -> ImageInfo:
    return ImageInfo(
        digest=DIGEST,
        references=(reference,),
        size_bytes=5 * 1024 * 1024,
        layers=2,
        machines=machines,
        pulled_at=AT,
    )


def chunk(position: int, data: bytes, stream: int = 1) -> LogChunk:
    return LogChunk(position=position, at=AT, stream=stream, process=0, data=data)


def check(status: str) -> CheckStatus:
    return CheckStatus(name="http-80", status=status, output="200 OK", updated_at=AT)
