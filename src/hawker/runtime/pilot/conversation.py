"""What a driver says to a pilot and how it answers, one function a question. Deadlines are the caller's."""

from enum import Enum

from hawker.errors import Conflict, Unavailable
from hawker.ids import InstanceId
from hawker.runtime.driver import ProcessInfo
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.connection import PATIENCE, Connection, Inbox
from hawker.runtime.pilot.frames import Frame, Kind, Malformed, Reader

_PROCESSES_MAX = 512  # a pilot lists no more
_PROCESSES_BYTES_MAX = 4 << 20


class Answer(Enum):
    READY = "ready"
    ENDED = "ended"


def send_spec(pilot: Connection, encoded: bytes) -> None:
    for frame in messages.spec_frames(encoded):
        pilot.send(frame)


async def started(pilot: Connection, instance_id: InstanceId) -> Answer:
    """After `send_spec`: whether the workload was executed, or has ended already. Raises `Conflict` when the pilot
    runs something else."""
    for _ in range(PATIENCE):
        try:
            frame = await pilot.take()
        except Unavailable:
            return Answer.ENDED
        match frame.kind:
            case Kind.READY:
                return Answer.READY
            case Kind.EXIT:
                return Answer.ENDED
            case Kind.REFUSED:
                raise Conflict(f"instance {instance_id}: {read_refusal(frame)}")
            case _:
                pass
    return Answer.ENDED


def request_stop(pilot: Connection, signal: int, timeout_s: float) -> None:
    pilot.send(messages.stop_request(signal, timeout_s))


def send_signal(pilot: Connection, signal: int) -> None:
    pilot.send(frames.encode(Kind.SIGNAL, 0, frames.number(signal, 1)))


async def list_processes(pilot: Connection) -> tuple[ProcessInfo, ...]:
    inbox = Inbox()
    channel = pilot.open_channel(inbox)
    pilot.send(frames.encode(Kind.LIST, channel))
    found: list[ProcessInfo] = []
    size = 0
    while (frame := await inbox.take()).kind == Kind.PROCESS:
        size += len(frame.payload)
        if len(found) == _PROCESSES_MAX or size > _PROCESSES_BYTES_MAX:
            raise Unavailable("the machine runs more processes than can be listed")
        try:
            found.append(messages.read_process(frame.payload))
        except Malformed as broken:
            raise Unavailable(f"the pilot broke the protocol: {broken}") from broken
    return tuple(found)


def read_refusal(frame: Frame) -> str:
    """Why, for people. Raises `Unavailable` for what says nothing."""
    try:
        return Reader(frame.payload).words()
    except Malformed as broken:
        raise Unavailable(f"the pilot broke the protocol: {broken}") from broken
