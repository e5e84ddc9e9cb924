"""What is done in a run: every call of a client and every blow of nature, as a value. A run is driven by a list of
them, so that it can be cut short."""

from dataclasses import dataclass
from enum import StrEnum


class WorkerVerb(StrEnum):
    # A client's.
    CREATE = "create"
    START = "start"
    STOP = "stop"
    SUSPEND = "suspend"
    RESTART = "restart"
    UPDATE = "update"
    DESTROY = "destroy"
    MEMORY = "memory"
    METADATA = "metadata"
    LEASE = "lease"
    RELEASE = "release"
    WAIT = "wait"
    VOLUME = "volume"  # ordered before the machine of the same label, which then has it
    EXTEND = "extend"
    LET_GO = "let go"  # of a volume
    TAKE_BACK = "take back"  # a volume that was let go of
    SNAPSHOT = "snapshot"
    RESTORE = "restore"  # the last snapshot of a volume, into a new one
    FORK = "fork"
    LOOK = "look"
    # Nature's.
    END = "end"  # a workload ends by itself, whether a daemon lives or not
    PANIC = "panic"  # the kernel of a machine ends, and the machine with it
    SPOIL = "spoil"  # the snapshot that a suspended machine is to go on with
    STUBBORN = "stubborn"  # a workload ignores every signal but SIGKILL
    KILL_AT_EDGE = "kill at edge"  # kill -9 at the n-th edge of an effect on the host from now
    KILL_AT_COMMIT = "kill at commit"  # right after the n-th commit from now; nobody hears of it
    KILL_AT_AWAIT = "kill at await"  # after n more turns of the event loop
    TERMINATE = "terminate"  # SIGTERM: a restart that was asked for
    CLOCK = "clock"  # the wall clock jumps
    DISK_FULL = "disk full"
    DISK_SLOW = "disk slow"
    DISK_FAILING = "disk failing"
    DRIVER_ERROR = "driver error"
    DRIVER_SLOW = "driver slow"
    HOST_ERROR = "host error"
    PULL_ERROR = "pull error"
    PULL_SLOW = "pull slow"


KILLS = frozenset({WorkerVerb.KILL_AT_EDGE, WorkerVerb.KILL_AT_COMMIT, WorkerVerb.KILL_AT_AWAIT})
NATURE = "nature"


@dataclass(frozen=True, slots=True)
class WorkerOperation:
    """`at` is in virtual seconds. `label` names a machine by its order. `amount` and `word` say how much and which. Of
    a kill, `kept` is the share of the commits not yet durable that is still there, `reboots` whether the host goes down
    as well, and `down_s` how long it takes until the next daemon begins."""

    number: int
    at: float
    actor: str
    verb: WorkerVerb
    label: str = ""
    amount: float = 0.0
    word: str = ""
    kept: float = 1.0
    reboots: bool = False
    down_s: float = 0.0
