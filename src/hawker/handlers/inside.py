"""Answers to the calls into a running machine: commands, processes, output, a terminal."""

import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
from msgspec.structs import replace

from hawker.api.contract.body import instant
from hawker.api.contract.exec import (
    EXEC_MACHINE,
    LIST_PROCESSES,
    MACHINE_ATTACH,
    MACHINE_COPY,
    MACHINE_LOGS,
    MACHINE_STATS,
    MACHINE_TERMINAL,
    AttachRequest,
    CopyRequest,
    ExecAnswer,
    ExecRequest,
    Exited,
    Input,
    InputEnd,
    ListenSocket,
    LogsQuery,
    MachineStats,
    Output,
    ProcessesQuery,
    ProcessStat,
    Resize,
    SendSignal,
    TerminalInput,
    TerminalOutput,
    TerminalRequest,
)
from hawker.api.contract.machine import MachineParams
from hawker.api.contract.node import LogChunk
from hawker.api.handlers import SocketChannel, answers
from hawker.api.route import Call, NoQuery
from hawker.clock import Clock
from hawker.config.process_rules import signal_number
from hawker.errors import BadRequest, DeadlineExceeded, Unavailable, WrongState, one_error
from hawker.fair.table import EXECS, EXECS_OF_MACHINE, FOLLOWERS, FOLLOWERS_OF_MACHINE
from hawker.fair.threads import Pool, in_thread
from hawker.fair.turns import Turns
from hawker.handlers.machines import MachineFinder
from hawker.ids import InstanceId, MachineId
from hawker.machine import GONE, Operation, judge
from hawker.record.machine import MachineRecord
from hawker.runtime.driver import Attachment, CopyDirection, Driver, ExecSession, ExecSpec, OutputChunk, ProcessInfo
from hawker.store.contract import Store
from hawker.worker.leases import check
from hawker.worker.table import MachineTable
from hawker.worker.usage import UsageMeter


def names_of(record: MachineRecord | None) -> tuple[str, ...]:
    """The containers of what runs, in their order. During an update that is still the previous version."""
    if record is None:
        return ()
    config = record.config if record.previous is None else record.previous.config
    return tuple(each.name or "" for each in config.containers or ())


def place_of(record: MachineRecord, container: str | None, *, in_machine: bool) -> int:
    """The place of the container, the first one's when none is named. Raises `BadRequest` when there is no such one."""
    names = names_of(record)
    if in_machine and container:
        raise BadRequest("container and machine exclude each other")
    if in_machine and names:
        raise BadRequest(f"this machine has no files of its own to run; name a container: {', '.join(names)}")
    if not container:
        return 0
    if container not in names:
        there = f"it has {', '.join(names)}" if names else "it has none"
        raise BadRequest(f"there is no container {container!r:.80} in this machine: {there}")
    return names.index(container)


# The list of processes in a machine, as the API sorts and shows it.

_ORDERS = ("asc", "desc")


def process_stats(found: Sequence[ProcessInfo], query: ProcessesQuery, now: float) -> tuple[ProcessStat, ...]:
    """Sorted by pid unless the query says otherwise. Raises `BadRequest`."""
    sort_by, order = query.sort_by or "pid", query.order or "asc"
    sortable = tuple(name for name in ProcessStat.__struct_fields__ if name != "listen_sockets")
    if sort_by not in sortable:
        raise BadRequest(f"sort_by must be one of {', '.join(sortable)}")
    if order not in _ORDERS:
        raise BadRequest(f"order must be one of {', '.join(_ORDERS)}")
    stats = [_stat(process, now) for process in found]
    return tuple(sorted(stats, key=lambda stat: getattr(stat, sort_by), reverse=order == "desc"))


def _stat(process: ProcessInfo, now: float) -> ProcessStat:
    ran_s = max(0.0, now - process.started_at)
    return ProcessStat(
        pid=process.pid,
        stime=int(process.cpu_s),
        rtime=int(ran_s),
        command=process.command,
        directory=process.cwd,
        cpu=round(100 * process.cpu_s / ran_s) if ran_s else 0,
        rss=process.rss_bytes,
        container=process.container,
        listen_sockets=tuple(ListenSocket(proto=socket.proto, address=socket.address) for socket in process.sockets),
    )


# Where in a machine a call means: which of its containers, by name.

_DEFAULT_TIMEOUT_S, _LONGEST_TIMEOUT_S = 60.0, 300.0
_MOST_OUTPUT = 1024 * 1024  # bytes of each stream that an exec answer carries
_FOLLOW_FIRST_S, _FOLLOW_LAST_S = 0.1, 0.8
_LAST_BREATH_S = 5.0  # from a pilot that says no more to the end of its machine
_JOINED_S, _JOINED_BYTES = 0.001, 16 * 1024


class InsideHandlers:
    def __init__(
        self,
        machines: MachineFinder,
        store: Store,
        table: MachineTable,
        driver: Driver,
        clock: Clock,
        meter: UsageMeter,
    ) -> None:
        self._machines = machines
        self._store = store
        self._table = table
        self._driver = driver
        self._clock = clock
        self._meter = meter
        self._execs, self._inside = Turns(EXECS), Turns(EXECS_OF_MACHINE)
        self._followers, self._followed = Turns(FOLLOWERS), Turns(FOLLOWERS_OF_MACHINE)

    @answers(EXEC_MACHINE)
    async def exec(self, call: Call[MachineParams, NoQuery, ExecRequest]) -> ExecAnswer:
        record = self._started(call.params)
        check(record, call.nonce, self._clock.now())
        timeout_s = min(float(call.body.timeout or _DEFAULT_TIMEOUT_S), _LONGEST_TIMEOUT_S)
        place = place_of(record, call.body.container, in_machine=bool(call.body.machine))
        spec, stdin = ExecSpec(argv=_argv(call.body), process=place), (call.body.stdin or "").encode()
        try:
            async with self._session(record, spec) as session:
                with one_error(), anyio.fail_after(timeout_s):
                    return await _run(session, stdin)
        except TimeoutError as error:
            raise DeadlineExceeded(f"the command did not end within {timeout_s:g} s and was killed") from error

    @asynccontextmanager
    async def _session(self, record: MachineRecord, spec: ExecSpec) -> AsyncIterator[ExecSession]:
        """Raises `OverShare` when the app or the machine has as many commands under way as one may have."""
        with self._execs.hold_now(record.app), self._inside.hold_now(record.id):
            async with _closing(await self._driver.exec(record.id, spec)) as session:
                yield session

    @answers(LIST_PROCESSES)
    async def processes(self, call: Call[MachineParams, ProcessesQuery, None]) -> tuple[ProcessStat, ...]:
        record = self._started(call.params)
        return process_stats(await self._driver.processes(record.id), call.query, self._clock.now())

    @answers(MACHINE_STATS)
    async def stats(self, call: Call[MachineParams, NoQuery, None]) -> MachineStats:
        record = self._started(call.params)
        usage = await self._meter.read(record.id)
        stats, guest = usage.stats, record.config.guest
        return MachineStats(
            at=instant(self._clock.now()),
            cpus=guest.cpus if guest is not None else None,
            cpu_seconds=stats.cpu_s,
            throttled_seconds=stats.throttled_s,
            memory_bytes=stats.memory_bytes,
            working_set_bytes=stats.working_set_bytes,
            memory_limit_bytes=stats.memory_limit_bytes,
            oom_kills=stats.oom_kills,
            pids=stats.pids,
            disk_read_bytes=stats.read_bytes,
            disk_written_bytes=stats.written_bytes,
            network_received_bytes=usage.received_bytes,
            network_sent_bytes=usage.sent_bytes,
        )

    @answers(MACHINE_LOGS)
    async def logs(self, call: Call[MachineParams, LogsQuery, None]) -> AsyncIterator[LogChunk]:
        record = self._machines.find(call.params)
        return self._log_chunks(record, call.query) if call.query.follow else self._recorded(record, call.query)

    @answers(MACHINE_TERMINAL)
    async def terminal(
        self, call: Call[MachineParams, NoQuery, TerminalRequest], channel: SocketChannel[TerminalOutput, TerminalInput]
    ) -> None:
        record, wanted = self._started(call.params), call.body
        if not wanted.command:
            raise BadRequest("command is empty")
        spec = ExecSpec(
            argv=wanted.command,
            env=wanted.env,
            user=wanted.user,
            cwd=wanted.cwd,
            tty=wanted.tty,
            rows=wanted.rows,
            cols=wanted.cols,
            process=place_of(record, wanted.container, in_machine=False),
        )
        async with self._session(record, spec) as session:
            await _converse(channel, session)

    @answers(MACHINE_ATTACH)
    async def attach(
        self, call: Call[MachineParams, NoQuery, AttachRequest], channel: SocketChannel[TerminalOutput, TerminalInput]
    ) -> None:
        """Attaches a terminal to a process. What was written before comes first, then the process's output as it
        comes."""
        record = self._started(call.params)
        with self._execs.hold_now(record.app), self._inside.hold_now(record.id):
            session, position = await self._attached(record.id, call.body)
            async with _closing(session):
                await self._send_earlier(record.id, position, channel)
                await _converse(channel, session)

    async def _attached(self, machine_id: MachineId, body: AttachRequest) -> tuple[Attachment, int]:
        """At the machine's process, and the position of its first output that comes there. Raises `WrongState` also
        when contact was lost because the machine ended."""
        try:
            session = await self._driver.attach(machine_id, 0, rows=body.rows, cols=body.cols)
            async with _closed_on_failure(session):
                return session, await session.position()
        except Unavailable:
            with anyio.move_on_after(_LAST_BREATH_S) as waiting:
                await self._driver.wait(machine_id)
            if waiting.cancelled_caught:
                raise
        raise WrongState(f"machine {machine_id} has ended")

    async def _send_earlier(self, machine_id: MachineId, end: int, channel: SocketChannel[TerminalOutput, Any]) -> None:
        """What was written before position `end`."""
        after = -1
        while after < end - 1:
            chunks = await in_thread(Pool.LOGS, partial(self._driver.output, machine_id, after=after))
            for chunk in chunks:
                if chunk.position < end:
                    await channel.send(Output(stream=chunk.stream, data=chunk.data))
            after = chunks[-1].position if chunks else end

    @answers(MACHINE_COPY)
    async def copy(
        self, call: Call[MachineParams, NoQuery, CopyRequest], channel: SocketChannel[TerminalOutput, TerminalInput]
    ) -> None:
        record, wanted = self._started(call.params), call.body
        direction = CopyDirection(wanted.direction)
        into = (wanted.name, "owners" if wanted.owners else "") if direction is CopyDirection.IN else ()
        place = place_of(record, wanted.container, in_machine=False)
        user = "0" if self._driver.features.rootfs else None
        spec = ExecSpec(argv=(wanted.path, *into), user=user, cwd="/", process=place, copy=direction)
        async with self._session(record, spec) as session:
            await _converse(channel, session)

    def _started(self, params: MachineParams) -> MachineRecord:
        record = self._machines.find(params)
        judge(Operation.EXEC, record.state)
        return record

    async def _recorded(self, record: MachineRecord, query: LogsQuery) -> AsyncIterator[LogChunk]:
        """All that is there now."""
        instance, tail, names = _instance_of(record), query.tail, names_of(record)
        after = _begin(query, instance)
        while chunks := await self._output(record.id, after, tail):
            for chunk in chunks:
                if chunk.at >= (query.since or 0.0):
                    yield _chunk(chunk, names, instance)
            after = chunks[-1].position
            if tail is not None:
                return

    async def _output(self, machine_id: MachineId, after: int, tail: int | None) -> list[OutputChunk]:
        """In a thread: a ring of single bytes takes half a second to read."""
        read = partial(self._joined_output, machine_id, after, tail)
        return read() if self._driver.features.output_in_memory else await in_thread(Pool.LOGS, read)

    def _joined_output(self, machine_id: MachineId, after: int, tail: int | None) -> list[OutputChunk]:
        return joined(self._driver.output(machine_id, after=after, tail=tail))

    async def _log_chunks(self, record: MachineRecord, query: LogsQuery) -> AsyncIterator[LogChunk]:
        """What is recorded, then what comes, until the machine is gone. Raises `OverShare`."""
        with self._followers.hold_now(record.app), self._followed.hold_now(record.id):
            async for chunk in self._followed_chunks(record.id, query):
                yield chunk

    async def _followed_chunks(self, machine_id: MachineId, query: LogsQuery) -> AsyncIterator[LogChunk]:
        instance = _instance_of(self._table.lookup(self._store, machine_id))
        after, tail, pause_s = _begin(query, instance), query.tail, _FOLLOW_FIRST_S
        while True:
            record = self._table.lookup(self._store, machine_id)
            latest = _instance_of(record)
            if instance is not None and latest != instance:
                after = -1  # positions are an instance's own
            instance = latest
            chunks = await self._output(machine_id, after, tail if tail != 0 else 1)
            for chunk in chunks:
                if tail != 0 and chunk.at >= (query.since or 0.0):
                    yield _chunk(chunk, names_of(record), instance)
                after = chunk.position
            tail = None
            if not chunks:
                if record is None or record.state in GONE:
                    return
                await self._clock.sleep(pause_s)
            pause_s = _FOLLOW_FIRST_S if chunks else min(2 * pause_s, _FOLLOW_LAST_S)


def _argv(body: ExecRequest) -> tuple[str, ...]:
    try:
        argv = body.command or tuple(shlex.split(body.cmd or ""))
    except ValueError as error:
        raise BadRequest(f"cmd: {error}") from error
    if not argv:
        raise BadRequest("command is empty")
    return argv


async def _run(session: ExecSession, stdin: bytes) -> ExecAnswer:
    collected = {1: bytearray(), 2: bytearray()}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_give, session, stdin)
        async for stream, data in session.output():
            room = _MOST_OUTPUT - len(collected[stream])
            collected[stream] += data[:room]
    exit = await session.wait()
    if exit.reason:
        collected[2] += exit.reason.encode()
    return ExecAnswer(
        exit_code=exit.exit_code,
        exit_signal=exit.signal,
        stdout=collected[1].decode("utf-8", "replace"),
        stderr=collected[2].decode("utf-8", "replace"),
    )


async def _give(session: ExecSession, stdin: bytes) -> None:
    if stdin:
        await session.send(stdin)
    await session.send_eof()


@asynccontextmanager
async def _closed_on_failure(session: ExecSession) -> AsyncIterator[None]:
    try:
        yield
    except BaseException:
        await session.close()
        raise


@asynccontextmanager
async def _closing(session: ExecSession) -> AsyncIterator[ExecSession]:
    try:
        yield session
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(5):
            await session.close()


async def _converse(channel: SocketChannel[TerminalOutput, TerminalInput], session: ExecSession) -> None:
    """Both directions, until the command has ended or the client has gone."""
    with one_error(), suppress(Unavailable):  # nobody is left to be told
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_feed, channel, session)
            await _show(session, channel)
            tasks.cancel_scope.cancel()


async def _feed(channel: SocketChannel[TerminalOutput, TerminalInput], session: ExecSession) -> None:
    """Pass on what the client sends, until it goes; then the command is ended."""
    while (message := await channel.receive()) is not None:
        match message:
            case Input():
                await session.send(message.data)
            case InputEnd():
                await session.send_eof()
            case Resize():
                await session.resize(message.rows, message.cols)
            case SendSignal():
                await session.signal(_number(message.signal))
    await session.close()


def _number(signal: str | int) -> int:
    try:
        return signal_number(signal)
    except ValueError as error:
        raise BadRequest(f"signal: {error}") from error


async def _show(session: ExecSession, channel: SocketChannel[TerminalOutput, TerminalInput]) -> None:
    async for stream, data in session.output():
        await channel.send(Output(stream=stream, data=data))
    exit = await session.wait()
    await channel.send(
        Exited(exit_code=exit.exit_code, signal=exit.signal, oom_killed=exit.oom_killed, reason=exit.reason)
    )


def joined(chunks: Sequence[OutputChunk]) -> list[OutputChunk]:
    """Records that came within a millisecond on one stream as one, so that who writes single bytes costs no more than
    who writes lines. Its position is the last one's."""
    found: list[OutputChunk] = []
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        first = found[-1] if found else None
        same = first is not None and (first.stream, first.process) == (chunk.stream, chunk.process)
        if first is None or not same or chunk.at - first.at > _JOINED_S or size + len(chunk.data) > _JOINED_BYTES:
            _close_joined(found, parts)
            found.append(chunk)
            size = 0
        else:
            found[-1] = replace(first, position=chunk.position)
        parts.append(chunk.data)
        size += len(chunk.data)
    _close_joined(found, parts)
    return found


def _close_joined(found: list[OutputChunk], parts: list[bytes]) -> None:
    if len(parts) > 1:
        found[-1] = replace(found[-1], data=b"".join(parts))
    parts.clear()


def _instance_of(record: MachineRecord | None) -> InstanceId | None:
    return record.running.instance_id if record and record.running else None


def _begin(query: LogsQuery, instance: InstanceId | None) -> int:
    """The position after which the answer begins: positions are an instance's own."""
    if query.after is None or (query.instance is not None and query.instance != instance):
        return -1
    return query.after


def _chunk(chunk: OutputChunk, names: tuple[str, ...], instance: InstanceId | None) -> LogChunk:
    return LogChunk(
        position=chunk.position,
        at=instant(chunk.at),
        stream=chunk.stream,
        process=chunk.process,
        container=names[chunk.process] if chunk.process < len(names) else "",
        instance=instance or "",
        data=chunk.data,
    )
