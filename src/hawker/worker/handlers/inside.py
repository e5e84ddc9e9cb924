"""Answers to the calls into a running machine: commands, processes, output, a terminal."""

import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import anyio

from hawker.api.contract.body import instant
from hawker.api.contract.exec import (
    EXEC_MACHINE,
    LIST_PROCESSES,
    MACHINE_LOGS,
    MACHINE_TERMINAL,
    ExecAnswer,
    ExecRequest,
    Exited,
    Input,
    InputEnd,
    ListenSocket,
    LogsQuery,
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
from hawker.errors import BadRequest, DeadlineExceeded, Unavailable
from hawker.ids import InstanceId, MachineId
from hawker.machine import GONE, Operation, judge
from hawker.record.machine import MachineRecord
from hawker.runtime.driver import Driver, ExecSession, ExecSpec, OutputChunk, ProcessInfo
from hawker.store.contract import Store
from hawker.worker.handlers.leaf import one_error
from hawker.worker.handlers.target import MachineFinder
from hawker.worker.leases import check
from hawker.worker.table import MachineTable


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
_FOLLOW_EVERY_S = 0.1


class InsideHandlers:
    def __init__(
        self, machines: MachineFinder, store: Store, table: MachineTable, driver: Driver, clock: Clock
    ) -> None:
        self._machines = machines
        self._store = store
        self._table = table
        self._driver = driver
        self._clock = clock

    @answers(EXEC_MACHINE)
    async def exec(self, call: Call[MachineParams, NoQuery, ExecRequest]) -> ExecAnswer:
        record = self._started(call.params)
        check(record, call.nonce, self._clock.now())
        timeout_s = min(float(call.body.timeout or _DEFAULT_TIMEOUT_S), _LONGEST_TIMEOUT_S)
        place = place_of(record, call.body.container, in_machine=bool(call.body.machine))
        session = await self._driver.exec(record.id, ExecSpec(argv=_argv(call.body), process=place))
        try:
            with one_error(), anyio.fail_after(timeout_s):
                return await _run(session, (call.body.stdin or "").encode())
        except TimeoutError as error:
            raise DeadlineExceeded(f"the command did not end within {timeout_s:g} s and was killed") from error
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(5):
                await session.close()

    @answers(LIST_PROCESSES)
    async def processes(self, call: Call[MachineParams, ProcessesQuery, None]) -> tuple[ProcessStat, ...]:
        record = self._started(call.params)
        return process_stats(await self._driver.processes(record.id), call.query, self._clock.now())

    @answers(MACHINE_LOGS)
    async def logs(self, call: Call[MachineParams, LogsQuery, None]) -> AsyncIterator[LogChunk]:
        record = self._machines.find(call.params)
        return self._log_chunks(record.id, call.query)

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
        session = await self._driver.exec(record.id, spec)
        try:
            with one_error(), suppress(Unavailable):  # nobody is left to be told
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_feed, channel, session)
                    await _show(session, channel)
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(5):
                await session.close()

    def _started(self, params: MachineParams) -> MachineRecord:
        record = self._machines.find(params)
        judge(Operation.EXEC, record.state)
        return record

    async def _log_chunks(self, machine_id: MachineId, query: LogsQuery) -> AsyncIterator[LogChunk]:
        """What is recorded, then with `follow` what comes, until the machine is gone."""
        after, tail = -1 if query.after is None else query.after, query.tail
        instance: InstanceId | None = None
        while True:
            record = self._table.lookup(self._store, machine_id)
            latest = record.running.instance_id if record and record.running else None
            if instance is not None and latest != instance:
                after = -1  # positions are an instance's own
            instance = latest
            chunks = self._driver.output(machine_id, after=after, tail=tail)
            for chunk in chunks:
                yield _chunk(chunk, names_of(record))
                after = chunk.position
            tail = None
            if not chunks:
                if not query.follow or record is None or record.state in GONE:
                    return
                await self._clock.sleep(_FOLLOW_EVERY_S)


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


def _chunk(chunk: OutputChunk, names: tuple[str, ...]) -> LogChunk:
    return LogChunk(
        position=chunk.position,
        at=instant(chunk.at),
        stream=chunk.stream,
        process=chunk.process,
        container=names[chunk.process] if chunk.process < len(names) else "",
        data=chunk.data,
    )
