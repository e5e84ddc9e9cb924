"""A fleet of real nodes to be hurt: a daemon on each host of a street, one cluster. Calls block, as a daemon's do."""

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from hawker.chaos.daemon import HAWKER, Daemon
from hawker.chaos.fleet.network_lab import LabHost, NetworkLab
from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.host.address import mesh_name
from hawker.host.cgroup import Cgroups, find_hierarchies
from hawker.host.mount import mounts
from hawker.ids import NodeId

PORT = 4280
JOINS_WITHIN_S = 120.0


class LabNode:
    """One node: its host and its daemon."""

    def __init__(self, host: LabHost, daemon: Daemon) -> None:
        self.host = host
        self.daemon = daemon

    @property
    def id(self) -> NodeId:
        return NodeId(self.daemon.node_id)

    @property
    def url(self) -> str:
        return f"http://{self.host.address}:{PORT}"

    def crash(self) -> None:
        """Kills the daemon only; its machines go on."""
        self.daemon.kill()

    def restart(self) -> None:
        self.daemon.start()

    def power_off(self) -> None:
        """The daemon, its machines, its network: all at once, and without a word to anybody."""
        node_id = self.id
        self.host.drop_from((), percent=100, everybody=True)
        self.daemon.lose()
        groups = Cgroups(node_id, find_hierarchies(mounts()))
        for machine_id in groups.list():
            groups.kill(machine_id)
        self.host.end_link(mesh_name(node_id))
        self.host.power_off()

    def power_on(self) -> None:
        self.host.power_on()
        self.daemon.before_it = self.host.before_it
        self.daemon.start()


class LabFleet:
    """A fleet in one region unless told; `regions` are dealt to the hosts in turn. Leaving the context destroys
    every machine; `left` says what stays on the host all the same."""

    def __init__(
        self,
        lab: NetworkLab,
        directory: Path,
        clock: Clock,
        *flags: str,
        driver: str,
        regions: Sequence[str] = ("mad",),
    ) -> None:
        self.lab = lab
        self.left: list[str] = []
        self.stalls = [
            LabNode(host, self._daemon(directory, host, clock, flags, driver, regions[index % len(regions)]))
            for index, host in enumerate(lab.hosts)
        ]

    def __enter__(self) -> Self:
        first, *others = self.stalls
        with ExitStack() as undo:
            undo.callback(self._close)
            first.daemon.start()
            for stall in others:
                self._join(stall, first)
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _daemon(
        self, directory: Path, host: LabHost, clock: Clock, flags: Sequence[str], driver: str, region: str
    ) -> Daemon:
        own = directory / f"node-{host.number}"
        own.mkdir()
        where = ("--listen", f"{host.address}:{PORT}", "--advertise", host.address, "--region", region)
        return Daemon(own, clock, *where, *flags, driver=driver, before_it=host.before_it)

    def _join(self, stall: LabNode, first: LabNode) -> None:
        """Does what `hawker join` does; the daemon is then ours to kill."""
        daemon = stall.daemon
        command = [*daemon.before_it, HAWKER, "join", first.url, "--no-start"]
        command += ["--data-dir", str(daemon.data_dir), "--advertise", stall.host.address]
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=JOINS_WITHIN_S,
            env={**daemon.environment, "HAWKER_TOKEN": first.daemon.token},
        )
        if done.returncode != 0:
            raise Unavailable(f"node {stall.host.number} cannot join: {done.stderr.strip()}")
        daemon.start()

    def _close(self) -> None:
        """Each node once more, to destroy what it has: on a host that has its power and hears everybody."""
        for stall in self.stalls:
            if not stall.host.has_power:
                stall.host.power_on()
                stall.daemon.before_it = stall.host.before_it
            stall.host.drop_from(())
            self.left += stall.daemon.withdraw()
