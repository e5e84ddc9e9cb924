"""Bodies about processes inside a machine: commands to run beside the workload, and what is running."""

from hawker.api.bodies.body import Answer, Request


class ExecRequest(Request, frozen=True, kw_only=True):
    """`command` is the argument list; `cmd` the older single string, split as a shell would. `timeout` in seconds."""

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
    """`stime` and `rtime` are seconds of processor time and since the start; `cpu` percent, `rss` bytes."""

    pid: int
    stime: int
    rtime: int
    command: str
    directory: str
    cpu: int
    rss: int
    listen_sockets: tuple[ListenSocket, ...]
