"""Bodies about processes inside a machine: commands to run beside the workload, and what is running."""

from collections.abc import Mapping
from typing import Any, ClassVar

from hawker.api.bodies.body import Answer, Request
from hawker.api.bounds import SHELL_WORDS

_NO_COMMAND = {"anyOf": [{"type": "null"}, {"type": "array", "maxItems": 0}]}


class ExecRequest(Request, frozen=True, kw_only=True):
    """`command` is the argument list; `cmd` the older single string, split as a shell would. `container` names where to
    run it, the first one by default; `machine` is for machines without containers. `timeout` in seconds."""

    rules: ClassVar[Mapping[str, Any]] = {
        "anyOf": [
            {"required": ["command"], "properties": {"command": {"type": "array", "minItems": 1}}},
            {
                "required": ["cmd"],
                "properties": {"cmd": {"type": "string", "pattern": SHELL_WORDS}, "command": _NO_COMMAND},
                "allOf": [{"properties": {"cmd": {"pattern": r"[^\s]"}}}],
            },
        ]
    }

    command: tuple[str, ...] | None = None
    cmd: str | None = None
    container: str | None = None
    machine: bool | None = None
    stdin: str | None = None
    timeout: int | None = None


class ExecAnswer(Answer, frozen=True, kw_only=True):
    """Output that is not UTF-8 has replacement characters in it."""

    exit_code: int
    exit_signal: int
    stdout: str
    stderr: str


class ListenSocket(Answer, frozen=True, kw_only=True):
    proto: str
    address: str


class ProcessStat(Answer, frozen=True, kw_only=True):
    """`stime` and `rtime` are seconds of processor time and since the start; `cpu` percent, `rss` bytes; `container`
    the name of the container that it is in, where that can be told."""

    pid: int
    stime: int
    rtime: int
    command: str
    directory: str
    cpu: int
    rss: int
    listen_sockets: tuple[ListenSocket, ...]
    container: str = ""
