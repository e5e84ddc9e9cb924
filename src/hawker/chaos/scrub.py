"""The last resort: what a node left on its host is removed without its daemon's help, because that failed."""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from anyio.to_thread import run_sync

from hawker.chaos.daemon import Daemon
from hawker.chaos.endings import kill
from hawker.chaos.guests import CONTAINED
from hawker.chaos.inspect import driver_of
from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.host.mount import mounts, unmount
from hawker.host.network import NodeNetwork
from hawker.host.residue import Residue, host
from hawker.ids import MachineId, NodeId


async def scrub(daemon: Daemon, clock: Clock) -> None:
    """Every daemon that is left, every machine, the network, the mounts, the control groups. What cannot be removed is
    left; what can be is removed all the same."""
    await run_sync(_end_processes, _own(daemon), str(daemon.data_dir))
    node_id = NodeId(daemon.node_id)
    with suppress(HawkerError, OSError):
        driver = driver_of(daemon, node_id, clock)
        for machine_id in await driver.list():
            await driver.destroy(machine_id)
    if daemon.driver in CONTAINED:
        with suppress(HawkerError, OSError):
            await _unplug(NodeNetwork(node_id, daemon.place.networks))
    await run_sync(_end_processes, _own(daemon))
    for mounted in reversed(mounts(daemon.data_dir)):
        if mounted.target != daemon.data_dir:
            unmount(mounted.target)
    _remove_cgroups(_own(daemon))


async def _unplug(network: NodeNetwork) -> None:
    machines: list[MachineId] = await network.list()
    for machine_id in machines:
        await network.delete(machine_id)
    await network.remove_node()


def _own(daemon: Daemon) -> list[Residue]:
    return sorted(trace for trace in host() if any(mark in trace.bears for mark in daemon.marks))


def _end_processes(traces: Iterable[Residue], word: str = "") -> None:
    """Those with `word` in their command."""
    for trace in traces:
        if trace.kind == "process" and word in trace.name:
            kill(int(trace.name.split()[0]), signal.SIGKILL)


def _remove_cgroups(traces: Iterable[Residue]) -> None:
    """The deepest first."""
    for trace in sorted(traces, key=lambda trace: -len(trace.name)):
        if trace.kind == "cgroup":
            with suppress(OSError):
                os.rmdir(Path(trace.name))
