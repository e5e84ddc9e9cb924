"""Messages of an exec session over a WebSocket: JSON text frames, one message each, bytes as base64.

The client sends `TerminalRequest`, then any `TerminalInput`; the node sends any `TerminalOutput`, last `Exited`, or
`Failed` (in `problem`) where something else ended it.
"""

from typing import TypeAlias

import msgspec

from hawker.api.bodies.body import Answer, Request


class TerminalRequest(Request, frozen=True, kw_only=True):
    """What to run, in which `container`: the first one by default. Unset `user` and `cwd` follow the machine's process
    there. `rows` and `cols` matter with a `tty`."""

    command: tuple[str, ...]
    tty: bool = False
    rows: int = 24
    cols: int = 80
    env: dict[str, str] = msgspec.field(default_factory=dict)
    user: str | None = None
    cwd: str | None = None
    container: str | None = None


class Input(Request, frozen=True, kw_only=True, tag_field="type", tag="input"):
    data: bytes


class InputEnd(Request, frozen=True, kw_only=True, tag_field="type", tag="input_end"):
    pass


class Resize(Request, frozen=True, kw_only=True, tag_field="type", tag="resize"):
    rows: int
    cols: int


class SendSignal(Request, frozen=True, kw_only=True, tag_field="type", tag="signal"):
    signal: str | int


TerminalInput: TypeAlias = Input | InputEnd | Resize | SendSignal


class Output(Answer, frozen=True, kw_only=True, tag_field="type", tag="output"):
    """`stream` is 1 for stdout or the terminal, 2 for stderr."""

    stream: int
    data: bytes


class Exited(Answer, frozen=True, kw_only=True, tag_field="type", tag="exited"):
    """`exit_code` is 128 + `signal` when a signal ended the command."""

    exit_code: int
    signal: int
    oom_killed: bool = False
    reason: str = ""


TerminalOutput: TypeAlias = Output | Exited
