"""Requests to a pilot and its answers, one function a request. Deadlines are the caller's, but for those of a freeze.

`set_clock` and what follows it are only for the pilot of a machine with a kernel of its own. What such a guest says of
itself is bounded, and not to be believed in anything that matters. Each of these raises `WrongState` when the pilot
refuses, as one without a kernel of its own does, and `Unavailable` when the guest does not do it, or breaks the
protocol.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from enum import Enum
from typing import TypeVar

import anyio

from hawker.errors import Conflict, Unavailable, WrongState
from hawker.ids import InstanceId
from hawker.runtime.driver import ProcessInfo, VolumeUsage
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.connection import PATIENCE, Connection, Inbox
from hawker.runtime.pilot.frames import Frame, FrameKind, MalformedPilotFrame, PayloadReader
from hawker.value_object import ValueObject

_PROCESSES_MAX = 512  # a pilot lists no more
_PROCESSES_BYTES_MAX = 4 << 20
THAW_TIMEOUT_S = 5.0
GROW_VERSION = 3  # of the protocol that asks such things of a guest
TRIM_VERSION = 5
_BLOCK_MAX = 1 << 20  # bytes
_SIZE_MAX = 1 << 63  # bytes
_T = TypeVar("_T")


class PilotStartAnswer(Enum):
    READY = "ready"
    ENDED = "ended"


def send_spec(pilot: Connection, encoded: bytes) -> None:
    for frame in messages.spec_frames(encoded):
        pilot.send(frame)


async def started(pilot: Connection, instance_id: InstanceId) -> PilotStartAnswer:
    """The answer to `send_spec`: whether the workload was executed, or has ended already. Raises `Conflict` when the
    pilot runs something else."""
    for _ in range(PATIENCE):
        try:
            frame = await pilot.take()
        except Unavailable:
            return PilotStartAnswer.ENDED
        match frame.kind:
            case FrameKind.READY:
                return PilotStartAnswer.READY
            case FrameKind.EXIT:
                return PilotStartAnswer.ENDED
            case FrameKind.REFUSED:
                raise Conflict(f"instance {instance_id}: {read_refusal(frame)}")
            case _:
                pass
    return PilotStartAnswer.ENDED


def request_stop(pilot: Connection, signal: int, timeout_s: float) -> None:
    pilot.send(messages.stop_request(signal, timeout_s))


def send_signal(pilot: Connection, signal: int) -> None:
    pilot.send(frames.encode(FrameKind.SIGNAL, 0, frames.number(signal, 1)))


async def list_processes(pilot: Connection) -> tuple[ProcessInfo, ...]:
    """Raises `Unavailable` when the pilot has gone, breaks the protocol, or lists too much."""
    inbox = Inbox()
    channel = pilot.open_channel(inbox)
    pilot.send(frames.encode(FrameKind.LIST, channel))
    found: list[ProcessInfo] = []
    size = 0
    while (frame := await inbox.take()).kind == FrameKind.PROCESS:
        size += len(frame.payload)
        if len(found) == _PROCESSES_MAX or size > _PROCESSES_BYTES_MAX:
            raise Unavailable("the machine runs more processes than can be listed")
        try:
            found.append(messages.read_process(frame.payload))
        except MalformedPilotFrame as broken:
            raise Unavailable(f"the machine answered what makes no sense: {broken}") from broken
    return tuple(found)


def read_refusal(frame: Frame) -> str:
    """Why, for people. Raises `Unavailable` for what says nothing."""
    try:
        return PayloadReader(frame.payload).words()
    except MalformedPilotFrame as broken:
        raise Unavailable(f"the machine answered what makes no sense: {broken}") from broken


class GuestMemory(ValueObject, frozen=True):
    """The memory of a guest in bytes, as its kernel counts."""

    total: int
    """Without swap."""
    available: int
    """What processes could still get, with what the kernel would drop; at most `total`."""
    free: int
    """What nobody uses, at most `total`."""
    swap_total: int
    """0 where there is none."""
    swap_free: int
    """At most `swap_total`."""


async def set_clock(pilot: Connection, now: float) -> None:
    """Set the guest's clock to `now`, Unix seconds."""
    await _do(pilot, FrameKind.CLOCK, frames.nanoseconds(now))


@asynccontextmanager
async def freeze(pilot: Connection, target: str, timeout_s: float) -> AsyncIterator[None]:
    """The file system at `target` is whole on its disk, and nothing is written within the block. Raises `Unavailable`
    at the block's end when the guest has let go before, as it does after `timeout_s`."""
    began = anyio.current_time()
    with anyio.move_on_after(timeout_s) as entry:
        await _do(pilot, FrameKind.FREEZE, frames.string(target) + frames.milliseconds(timeout_s))
    if entry.cancelled_caught:
        raise Unavailable(f"the guest did not hold {target} still within {timeout_s:g} s")
    try:
        yield
    except BaseException:
        with suppress(Unavailable, WrongState):
            await _thaw(pilot, target)
        raise
    await _thaw(pilot, target)
    if anyio.current_time() - began > timeout_s:
        raise Unavailable(f"{target} was not held still for as long as it was needed, {timeout_s:g} s")


async def _thaw(pilot: Connection, target: str) -> None:
    with anyio.move_on_after(THAW_TIMEOUT_S, shield=True):
        await _do(pilot, FrameKind.THAW, frames.string(target))
        return
    raise Unavailable(f"the guest does not say whether it let go of {target}")


async def grow(pilot: Connection, target: str) -> None:
    """The file system at `target`, to the size that its disk has."""
    await _do(pilot, FrameKind.GROW, frames.string(target))


async def trim(pilot: Connection, target: str, start: int, count: int) -> None:
    """Have the disk drop what the file system at `target` does not use of these bytes."""
    _check_version(pilot, TRIM_VERSION)
    await _do(pilot, FrameKind.TRIM, frames.string(target) + frames.number(start, 8) + frames.number(count, 8))


async def memory(pilot: Connection) -> GuestMemory:
    return await _ask(pilot, FrameKind.MEMORY, b"", FrameKind.MEMORY_IS, read_memory)


async def usage(pilot: Connection, target: str) -> VolumeUsage:
    return await _ask(pilot, FrameKind.USAGE, frames.string(target), FrameKind.USAGE_IS, read_usage)


def read_memory(reader: PayloadReader) -> GuestMemory:
    """Raises `MalformedPilotFrame`, also for what cannot be."""
    total, available, free, swap_total, swap_free = (reader.number(8) for _ in range(5))
    if total + swap_total > _SIZE_MAX or max(available, free) > total or swap_free > swap_total:
        raise MalformedPilotFrame("more memory than there is")
    return GuestMemory(total=total, available=available, free=free, swap_total=swap_total, swap_free=swap_free)


def read_usage(reader: PayloadReader) -> VolumeUsage:
    """Raises `MalformedPilotFrame`, also for what cannot be."""
    block_size, blocks, free, available = (reader.number(8) for _ in range(4))
    if not 0 < block_size <= _BLOCK_MAX or block_size * blocks > _SIZE_MAX or max(free, available) > blocks:
        raise MalformedPilotFrame("more space than there is")
    return VolumeUsage(block_size=block_size, blocks=blocks, blocks_free=free, blocks_avail=available)


async def _do(pilot: Connection, kind: FrameKind, payload: bytes) -> None:
    why = await _ask(pilot, kind, payload, FrameKind.DONE, lambda reader: reader.words())
    if why:
        raise Unavailable(f"the guest could not do it: {why}")


def _check_version(pilot: Connection, needed: int) -> None:
    if pilot.version < needed:
        raise WrongState("the machine was started by an older version, which cannot do this: stop and start it")


async def _ask(
    pilot: Connection, kind: FrameKind, payload: bytes, answer: FrameKind, read: Callable[[PayloadReader], _T]
) -> _T:
    _check_version(pilot, GROW_VERSION)
    inbox = Inbox()
    pilot.send(frames.encode(kind, pilot.open_channel(inbox), payload))
    frame = await inbox.take()
    try:
        reader = PayloadReader(frame.payload)
        if frame.kind == FrameKind.REFUSED:
            raise WrongState(f"the machine refuses: {reader.words()}")
        if frame.kind != answer:
            raise MalformedPilotFrame(f"an answer of type {frame.kind} to a question of type {kind}")
        return read(reader)
    except MalformedPilotFrame as broken:
        raise Unavailable(f"the machine answered what makes no sense: {broken}") from broken
