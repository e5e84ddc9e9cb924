"""Workloads that are told to end, and the exit codes that must be recorded of them.

In a container the sample web server is asked over its network to exit with a code; a process of this host is ended by
a signal. Only a machine at which nothing else is under way is told, so the true code is known.
"""

import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import anyio

from hawker.api.contract.machine import Machine
from hawker.chaos.chance import SeededChance
from hawker.ids import MachineId
from hawker.record.machine import EVENTS
from hawker.runtime import proc
from hawker.runtime.pilot.rundir import RunDir
from hawker.store.contract import Reader
from hawker.value_object import ValueObject

_PORT = 8080
_ANSWER_S = 3.0
_MOMENT_S = 2.0
_SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGALRM, signal.SIGHUP)
_SIGNALLED = 128
_CODES = 120


def pilot_of(machines: Path, machine_id: MachineId) -> int | None:
    """The process id of a pilot that lives."""
    run = RunDir(machines / machine_id / "run")
    return run.pid() if run.alive() else None


def kill(pid: int, number: signal.Signals) -> bool:
    """Whether it was there."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def workload_of(pilot: int) -> int | None:
    """The first child of a pilot: what a later `exec` started has a higher number."""
    return min((entry.pid for entry in proc.descendants(pilot) if entry.parent == pilot), default=None)


class ToldExit(ValueObject, frozen=True):
    machine_id: MachineId
    code: int
    """The exit code that the history tells, 0 to 255."""


class ToldExits:
    """`spoilt`: machines whose pilot was hurt, so that what it knew may be lost with it."""

    def __init__(self, machines: Path, chance: SeededChance, *, networked: bool, port: int = _PORT) -> None:
        self._machines = machines
        self._chance = chance
        self._networked = networked
        self._port = port
        self._told: Counter[ToldExit] = Counter()
        self._newest: dict[MachineId, tuple[ToldExit, float]] = {}
        self._codes = 0
        self.spoilt: set[MachineId] = set()

    async def end(self, machine: Machine) -> bool:
        """Whether it heard."""
        machine_id = MachineId(machine.id)
        code = await self._ask(machine) if self._networked else self._signal(machine_id)
        if code is not None:
            told = ToldExit(machine_id, code)
            self._told[told] += 1
            self._newest[machine_id] = told, anyio.current_time()
        return code is not None

    def interfere(self, machine_id: MachineId) -> None:
        """Its workload is being killed: if it was told to end a moment ago, nobody knows which of the two it was."""
        told, at_s = self._newest.pop(machine_id, (None, 0.0))
        if told is not None and anyio.current_time() - at_s < _MOMENT_S:
            self._told[told] -= 1

    def unrecorded(self, reader: Reader) -> list[str]:
        """At rest: each code that a workload ended with is in its machine's history."""
        found = []
        for told, count in self._told.items():
            events = [event for _, event in reader.scan(EVENTS, f"{told.machine_id}/")]
            exits = [event.detail.exit for event in events if event.detail and event.detail.exit]
            recorded = [exit.exit_code for exit in exits]
            if events and recorded.count(told.code) < count and told.machine_id not in self.spoilt:
                what = f"{told.machine_id} ended with {told.code} {count} times; recorded were {recorded}"
                found.append(f"{what}, last {exits[-1:]}")
        return found

    async def _ask(self, machine: Machine) -> int | None:
        self._codes = code = self._codes % _CODES + 1
        with anyio.move_on_after(_ANSWER_S), suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError):
            async with await anyio.connect_tcp(machine.private_ip, self._port) as stream:
                await stream.send(f"POST /exit/{code} HTTP/1.0\r\n\r\n".encode())
                answer = b""
                while b"bye" not in answer:
                    answer += await stream.receive()
                return code
        return None

    def _signal(self, machine_id: MachineId) -> int | None:
        pilot = pilot_of(self._machines, machine_id)
        workload = None if pilot is None else workload_of(pilot)
        number = self._chance.choice(_SIGNALS)
        if workload is None or not kill(workload, number):
            return None
        return _SIGNALLED + number
