"""From a seed to a run of the simulated worker: how the world is, who does what in it and when, and what goes wrong.
Pure.

Every seed leaves some kinds of faults out, so that each combination comes up: one may hide what another one shows.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec.structs import replace

from hawker.clock import ManualClock
from hawker.node import Capacity
from hawker.sim.harness.plan import NATURE, Chance, RunOperation, RunPlan, numbered


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


class WorkerOperation(RunOperation[WorkerVerb], frozen=True):
    """A call of a client, or a fault. `label` names a machine by its order. Of a kill, `kept` is the share of the
    commits not yet durable that is still there, `reboots` whether the host goes down as well, and `down_s` how long it
    takes until the next daemon begins."""

    kept: float = 1.0
    reboots: bool = False
    down_s: float = 0.0


CLIENTS = ("ann", "bob", "eve")
MINUTES = 5.0
ROOMY, NARROW = (
    Capacity(cpus=8, memory_mib=8192, disk_mib=100_000),
    Capacity(cpus=2, memory_mib=1024, disk_mib=2000),
)

_CALLS: Mapping[WorkerVerb, float] = {
    WorkerVerb.CREATE: 2.0,
    WorkerVerb.START: 2.0,
    WorkerVerb.STOP: 2.0,
    WorkerVerb.SUSPEND: 1.5,
    WorkerVerb.RESTART: 1.0,
    WorkerVerb.UPDATE: 1.5,
    WorkerVerb.DESTROY: 1.2,
    WorkerVerb.MEMORY: 0.7,
    WorkerVerb.METADATA: 0.7,
    WorkerVerb.LEASE: 0.4,
    WorkerVerb.RELEASE: 0.3,
    WorkerVerb.WAIT: 0.7,
    WorkerVerb.LOOK: 1.0,
    WorkerVerb.EXTEND: 0.7,
    WorkerVerb.LET_GO: 0.3,
    WorkerVerb.TAKE_BACK: 0.3,
    WorkerVerb.SNAPSHOT: 0.6,
    WorkerVerb.RESTORE: 0.3,
    WorkerVerb.FORK: 0.3,
}
_BLOWS: Mapping[WorkerVerb, float] = {
    WorkerVerb.END: 5.0,
    WorkerVerb.STUBBORN: 0.4,
    WorkerVerb.KILL_AT_EDGE: 2.0,
    WorkerVerb.KILL_AT_COMMIT: 2.0,
    WorkerVerb.KILL_AT_AWAIT: 2.0,
    WorkerVerb.TERMINATE: 0.7,
    WorkerVerb.CLOCK: 0.6,
    WorkerVerb.DISK_FULL: 0.6,
    WorkerVerb.DISK_SLOW: 0.6,
    WorkerVerb.DISK_FAILING: 0.6,
    WorkerVerb.DRIVER_ERROR: 1.5,
    WorkerVerb.DRIVER_SLOW: 1.0,
    WorkerVerb.HOST_ERROR: 1.0,
    WorkerVerb.PULL_ERROR: 0.5,
    WorkerVerb.PULL_SLOW: 0.5,
}
_GUEST_CALLS: Mapping[WorkerVerb, float] = {
    **_CALLS,
    WorkerVerb.CREATE: 0.7,
    WorkerVerb.DESTROY: 0.2,
    WorkerVerb.SUSPEND: 6.0,
    WorkerVerb.START: 6.0,
}
_GUEST_BLOWS: Mapping[WorkerVerb, float] = {WorkerVerb.END: 1.5, WorkerVerb.PANIC: 0.7, WorkerVerb.SPOIL: 6.0}
"""Where machines have kernels of their own."""

_ALWAYS = frozenset({WorkerVerb.END})
_PAUSES_S = (0.0, 0.0, 0.01, 0.05, 0.3, 1.0, 5.0, 12.0)
_OF_CONTAINERS = ("process_states", "start_process", "stop_process", "conclude")
_DRIVER_CALLS = (
    "prepare",
    "start",
    "stop",
    "suspend",
    "resume",
    "limit_memory",
    "recover",
    "wait",
    "destroy",
    *_OF_CONTAINERS,
)
_HOST_CALLS = ("mount", "unmount", "ensure", "delete", "make", "grow", "attach", "detach", "take", "restore", "fork")
_WITH_VOLUME = 0.4


class WorkerPlan(RunPlan[WorkerOperation], frozen=True):
    """`on_file`: the store is the real one, on a file, instead of its twin in memory. `guests`: machines have
    kernels of their own."""

    room: Capacity = ROOMY
    reconciles: bool = True
    on_file: bool = False
    guests: bool = False


def draw(seed: int, minutes: float = MINUTES) -> WorkerPlan:
    chance = Chance(ManualClock(seed=seed))
    left_out = {verb for verb in _BLOWS if verb not in _ALWAYS and chance.happens(0.4)}
    room, reconciles = chance.one_of((ROOMY, NARROW)), chance.happens(0.5)
    labels = chance.between(4, 12)
    guests = seed % 3 == 2
    operations = [operation for client in CLIENTS for operation in _calls(chance, client, minutes * 60, labels, guests)]
    blows = {verb: weight for verb, weight in _BLOWS.items() if verb not in left_out}
    blows |= _GUEST_BLOWS if guests else {}
    operations += _blows(chance, blows, minutes * 60, labels)
    return WorkerPlan(seed, numbered(operations), room, reconciles, on_file=seed % 4 == 0, guests=guests)


def _calls(chance: Chance, client: str, end: float, labels: int, guests: bool) -> list[WorkerOperation]:
    """Each client orders machines of its own and works with everybody's."""
    operations: list[WorkerOperation] = []
    at, made = chance.between(0, 3) * 0.1, 0
    while at < end:
        verb = chance.weighed(_GUEST_CALLS if guests else _CALLS) if made else WorkerVerb.CREATE
        if verb is WorkerVerb.CREATE:
            made += 1
            label = f"{client}-{made}"
            if chance.happens(_WITH_VOLUME):
                operations.append(
                    WorkerOperation(0, round(at, 3), client, WorkerVerb.VOLUME, label, amount=chance.between(1, 2))
                )
        else:
            label = f"{chance.one_of(CLIENTS)}-{chance.between(max(1, made - labels // 3), made)}"
        operation = _call(chance, WorkerOperation(0, round(at, 3), client, verb, label))
        operations.append(_in_one(operation) if guests else operation)
        at += chance.one_of(_PAUSES_S)
    return operations


def _in_one(operation: WorkerOperation) -> WorkerOperation:
    """A machine with a kernel of its own holds one container."""
    alone = "launch" if operation.verb is WorkerVerb.UPDATE else "no"
    return replace(operation, word=alone) if operation.word in ("containers", "batch") else operation


def _call(chance: Chance, operation: WorkerOperation) -> WorkerOperation:
    match operation.verb:
        case WorkerVerb.CREATE:
            words = {
                "no": 3.0,
                "always": 2.0,
                "on-failure": 2.0,
                "auto-destroy": 1.0,
                "not launched": 1.0,
                "containers": 1.5,
                "batch": 1.5,
            }
            return replace(operation, word=chance.weighed(words), amount=chance.one_of((256, 256, 256, 512, 4096)))
        case WorkerVerb.DESTROY:
            return replace(operation, word=chance.one_of(("force", "force", "")))
        case WorkerVerb.UPDATE:
            return replace(
                operation,
                word=chance.one_of(("launch", "launch", "no launch", "containers", "batch")),
                amount=chance.between(1, 10**6),
            )
        case WorkerVerb.METADATA:
            return replace(operation, amount=chance.between(1, 10**6))
        case WorkerVerb.EXTEND:
            return replace(operation, amount=chance.between(2, 6))
        case WorkerVerb.MEMORY:
            return replace(operation, amount=chance.one_of((64, 256, 300, 512)))
        case WorkerVerb.STOP:
            return replace(operation, amount=chance.one_of((0, 1, 5, 60)))
        case WorkerVerb.LEASE:
            return replace(operation, amount=chance.one_of((5, 30, 600)))
        case WorkerVerb.WAIT:
            states = ("started", "stopped", "suspended", "settled", "destroyed")
            return replace(operation, word=chance.one_of(states), amount=20)
        case _:
            return operation


def _blows(chance: Chance, weights: Mapping[WorkerVerb, float], end: float, labels: int) -> list[WorkerOperation]:
    operations: list[WorkerOperation] = []
    at = 0.5
    while at < end:
        verb = chance.weighed(weights)
        label = f"{chance.one_of(CLIENTS)}-{chance.between(1, 1 + int(at / end * labels * 2))}"
        operations.append(_blow(chance, WorkerOperation(0, round(at, 3), NATURE, verb, label)))
        at += chance.one_of((0.01, 0.3, 2.0, 4.0, 10.0))
    return operations


def _blow(chance: Chance, operation: WorkerOperation) -> WorkerOperation:
    if operation.verb in KILLS:
        return _kill(chance, operation)
    match operation.verb:
        case WorkerVerb.END:
            return replace(operation, amount=chance.one_of((0, 0, 1, 2, 137)))
        case WorkerVerb.TERMINATE:
            return replace(operation, label="", down_s=chance.one_of((0.0, 1.0, 10.0)))
        case WorkerVerb.CLOCK:
            return replace(operation, label="", amount=chance.one_of((-3600.0, -60.0, -1.0, 1.0, 60.0, 3600.0)))
        case WorkerVerb.DISK_FULL | WorkerVerb.DISK_SLOW | WorkerVerb.DISK_FAILING:
            return replace(operation, label="", amount=chance.one_of((0.1, 2.0, 15.0)))
        case WorkerVerb.DRIVER_ERROR:
            return replace(operation, label="", word=chance.one_of(_DRIVER_CALLS), amount=chance.between(0, 1))
        case WorkerVerb.DRIVER_SLOW:
            return replace(
                operation, label="", word=chance.one_of(_DRIVER_CALLS), amount=chance.one_of((0.2, 5.0, 100.0))
            )
        case WorkerVerb.HOST_ERROR:
            return replace(operation, label="", word=chance.one_of(_HOST_CALLS), amount=chance.between(0, 1))
        case WorkerVerb.PULL_ERROR | WorkerVerb.PULL_SLOW:
            return replace(
                operation, label="", amount=chance.between(1, 2) if operation.verb is WorkerVerb.PULL_ERROR else 30.0
            )
        case _:
            return operation


def _kill(chance: Chance, operation: WorkerOperation) -> WorkerOperation:
    amount = chance.between(1, {WorkerVerb.KILL_AT_AWAIT: 60}.get(operation.verb, 12))
    down_s = chance.one_of((0.0, 0.5, 5.0, 60.0))
    match chance.one_of(("killed", "killed", "power cut", "torn")):
        case "killed":
            return replace(operation, label="", amount=amount, down_s=down_s)
        case "power cut":
            kept = chance.one_of((0.0, 0.5, 1.0))
            return replace(operation, label="", amount=amount, down_s=down_s, kept=kept, reboots=True)
        case _:
            return replace(operation, label="", amount=amount, down_s=down_s, kept=chance.one_of((0.0, 0.5)))
