"""A node that notes when certain of its functions begin and end, for `profile_start.py` and `microvm.py`.

    python bench/traced_node.py SPANS up ...

The daemon is the real one; its functions are wrapped before it begins, and what was noted is written to SPANS (lines of
JSON) when it ends. Times are the monotonic clock's, which all processes of a host share.
"""

import sys
from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from hawker.cli.main import main
from hawker.fsm.drive import Recorder
from hawker.image.cache import ImageCache
from hawker.runtime.crun import Crun
from hawker.runtime.launcher.launch import BoxLauncher
from hawker.runtime.microvm import MicroVMDriver
from hawker.runtime.microvm_launch import MicroVMLauncher
from hawker.runtime.microvm_suspension import SnapshotSuspension
from hawker.runtime.pilot import driver
from hawker.runtime.vmm.crun_jail import CrunJail
from hawker.runtime.vmm.qemu import Qemu
from hawker.store.sqlite import SqliteStore
from hawker.worker.lifecycle.machine_networks import HostNetworks
from hawker.worker.lifecycle.root_disks import DiskRootfs
from hawker.worker.lifecycle.rootfs import HostRootfs
from hawker.worker.operations import Operations


class Span(msgspec.Struct, frozen=True, array_like=True):
    name: str
    began: float
    ended: float


WATCHED: tuple[tuple[Any, str, str], ...] = (
    (Operations, "start", "operation"),
    (Operations, "create", "operation"),
    (SqliteStore, "_apply", "transaction"),
    (ImageCache, "resolve", "resolve"),
    (HostRootfs, "mount", "mount"),
    (HostNetworks, "ensure", "network"),
    (driver.PilotDriver, "_give_back", "clear"),
    (driver.PilotDriver, "prepare", "prepare"),
    (Crun, "run", "launch"),
    (BoxLauncher, "run", "launch"),
    (driver, "_started", "pilot"),
    (driver.PilotDriver, "inspect", "inspect"),
    (Recorder, "attempt", "record"),
    (MicroVMDriver, "start", "begin"),
    (DiskRootfs, "mount", "mount"),
    (MicroVMLauncher, "plan", "plan"),
    (CrunJail, "launch", "jail"),
    (Qemu, "boot", "boot"),
    (MicroVMDriver, "resume", "resume"),
    (SnapshotSuspension, "_go_on", "go on"),
)


def watch(owner: Any, name: str, label: str, spans: list[Span]) -> None:
    inner: Callable[..., Any] = getattr(owner, name)

    @wraps(inner)
    async def later(*arguments: Any, **named: Any) -> Any:
        began = perf_counter()
        try:
            return await inner(*arguments, **named)
        finally:
            spans.append(Span(label, began, perf_counter()))

    @wraps(inner)
    def now(*arguments: Any, **named: Any) -> Any:
        began = perf_counter()
        try:
            return inner(*arguments, **named)
        finally:
            spans.append(Span(label, began, perf_counter()))

    setattr(owner, name, later if iscoroutinefunction(inner) else now)


def run(spans_file: str, *arguments: str) -> int:
    spans: list[Span] = []
    for owner, name, label in WATCHED:
        watch(owner, name, label, spans)
    try:
        return main(list(arguments))
    finally:
        Path(spans_file).write_bytes(b"\n".join(map(msgspec.json.encode, list(spans))))


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
