"""What a driver says to a pilot and how it answers, one function a question. Deadlines are the caller's."""

from enum import Enum

from hawker.errors import Conflict, Unavailable
from hawker.ids import InstanceId
from hawker.runtime.driver import ProcessInfo
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.connection import Connection, Inbox
from hawker.runtime.pilot.frames import Kind, Malformed, Reader


class Answer(Enum):
    READY = "ready"
    ENDED = "ended"


def send_spec(pilot: Connection, encoded: bytes) -> None:
    for frame in messages.spec_frames(encoded):
        pilot.send(frame)


async def started(pilot: Connection, instance_id: InstanceId) -> Answer:
    """After `send_spec`: whether the workload was executed, or has ended already. Raises `Conflict` when the pilot
    runs something else."""
    while True:
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
                raise Conflict(f"instance {instance_id}: {Reader(frame.payload).string()}")
            case _:
                pass


def request_stop(pilot: Connection, signal: int, timeout_s: float) -> None:
    pilot.send(messages.stop_request(signal, timeout_s))


def send_signal(pilot: Connection, signal: int) -> None:
    pilot.send(frames.encode(Kind.SIGNAL, 0, frames.number(signal, 1)))


async def list_processes(pilot: Connection) -> tuple[ProcessInfo, ...]:
    inbox = Inbox()
    channel = pilot.open_channel(inbox)
    pilot.send(frames.encode(Kind.LIST, channel))
    found: list[ProcessInfo] = []
    while (frame := await inbox.take()).kind == Kind.PROCESS:
        try:
            found.append(messages.read_process(frame.payload))
        except Malformed as broken:
            raise Unavailable(f"the pilot broke the protocol: {broken}") from broken
    return tuple(found)
