"""Health checks of started machines: one task per check, results in memory, fresh after each start.

A check never restarts or stops a machine (contract 3.5). Results are published in the machine's answers and wake those
who wait for the machine.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hawker.clock import Clock
from hawker.config import Check, checks
from hawker.containment import UNFORESEEN, contained
from hawker.deferred import deferred
from hawker.fair.table import CHECKS, CHECKS_OF_MACHINE
from hawker.fair.turns import Turns
from hawker.ids import AppName, InstanceId, MachineId
from hawker.logs.line import HEALTH, KeptLine
from hawker.machine import State
from hawker.record.machine import MACHINES, CheckResult, MachineRecord
from hawker.store.contract import Reader
from hawker.value_object import ValueObject
from hawker.worker.changes import Changes

if TYPE_CHECKING:
    import aiohttp
else:
    aiohttp = deferred("aiohttp")

_OUTPUT_LIMIT = 2048
_LINE_CHARS = 500

Say = Callable[[AppName, KeptLine], None]
"""Puts a line into an app's log."""


class Probe(ValueObject, frozen=True):
    """A question to a port of a machine, in the share of its app and machine. `path` None is a plain TCP connection.
    Where the machine has an IPv4 address, it is tried first: apps are told to listen on 0.0.0.0, and an app that does
    is reached by no address of IPv6."""

    host: str
    """The address at which its host reaches the machine, an IPv6 one for a machine with a network of its own."""
    port: int
    """The port, 1 to 65535."""
    timeout_s: float
    """The seconds from when its turn has come; a probe without an answer by then fails."""
    method: str = "GET"
    """The method of HTTP in upper case."""
    path: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    """Names and values, in order; a name may come more than once."""
    tls: bool = False
    """The probe speaks HTTP over TLS."""
    tls_verify: bool = True
    """The certificate has to be a valid one; otherwise any will do."""
    tls_server_name: str | None = None
    """The name that is asked for by SNI, and for which the certificate must be; None for `host`."""
    app: str = ""
    """The name of the app in whose share it counts."""
    machine: str = ""
    """The id of the machine in whose share it counts."""
    ipv4: str | None = None
    """The machine's IPv4 address; None where it has none."""


class ProbeResult(ValueObject, frozen=True):
    passing: bool
    """The connection was made, or the status was 200 to 299."""
    output: str
    """The answer, or why there was none: at most some 2,048 characters, from a stranger."""


class Prober(Protocol):
    async def __call__(self, probe: Probe) -> ProbeResult: ...


class NetworkProber:
    """Probes over the host's network. Never raises for what a machine does. Each probe has a connection of its own. A
    machine, and an app, has so many at once; more of them wait, and no machine is blamed for that."""

    def __init__(self, http: "Callable[[], aiohttp.ClientSession]") -> None:
        self._http = http
        self._of_app = Turns(CHECKS)
        self._of_machine = Turns(CHECKS_OF_MACHINE)

    async def __call__(self, probe: Probe) -> ProbeResult:
        async with self._of_machine.hold(probe.machine), self._of_app.hold(probe.app):
            return await self._probe(probe)

    async def _probe(self, probe: Probe) -> ProbeResult:
        """The deadline begins here, where nobody else is waited for any more."""
        try:
            with anyio.fail_after(probe.timeout_s):
                return await self._at_either(probe)
        except TimeoutError:
            return ProbeResult(False, f"no answer within {probe.timeout_s:g} s")
        except (OSError, aiohttp.ClientError, ValueError) as error:
            return ProbeResult(False, (str(error) or type(error).__name__)[:_OUTPUT_LIMIT])

    async def _at_either(self, probe: Probe) -> ProbeResult:
        """Whoever takes the connection has the word."""
        if probe.ipv4 is not None:
            with suppress(OSError if probe.path is None else aiohttp.ClientConnectorError):
                return await self._at(probe, probe.ipv4)
        return await self._at(probe, probe.host)

    async def _at(self, probe: Probe, host: str) -> ProbeResult:
        return await (self._connect(probe, host) if probe.path is None else self._ask(probe, host))

    async def _connect(self, probe: Probe, host: str) -> ProbeResult:
        async with await anyio.connect_tcp(host, probe.port):
            return ProbeResult(True, "Success")

    async def _ask(self, probe: Probe, host: str) -> ProbeResult:
        host = f"[{host}]" if ":" in host else host
        url = f"{'https' if probe.tls else 'http'}://{host}:{probe.port}{probe.path}"
        async with self._http().request(
            probe.method,
            url,
            headers=probe.headers,
            ssl=probe.tls_verify,
            server_hostname=probe.tls_server_name,
            allow_redirects=False,
        ) as answer:
            body = (await answer.content.read(_OUTPUT_LIMIT)).decode("utf-8", "replace")
            return ProbeResult(
                200 <= answer.status < 300, body if answer.status < 300 else f"status {answer.status}: {body}"
            )


# One health probe of a machine, from the host: does it accept a connection, or answer HTTP with a good status?

_Results: TypeAlias = dict[str, CheckResult]


class HealthChecks:
    """Follows the table of machines and runs the checks of those that are started. `say` is told when a check begins to
    pass or to fail."""

    def __init__(self, store: Reader, clock: Clock, changes: Changes, prober: Prober, say: Say | None = None) -> None:
        self._say = say
        self._store = store
        self._clock = clock
        self._changes = changes
        self._prober = prober
        self._results: dict[MachineId, _Results] = {}
        self._running: dict[MachineId, tuple[InstanceId, anyio.CancelScope]] = {}
        self._noted: dict[MachineId, None] = {}  # in order, so that a run can be repeated
        self._wake = anyio.Event()
        changes.listen(self._note)

    def of(self, record: MachineRecord) -> tuple[CheckResult, ...]:
        """The results of a machine's checks, in the config's order; warning before the first answer."""
        found = self._results.get(record.id, {})
        return tuple(
            found.get(check.name) or CheckResult(check.name, "warning", "not checked yet", record.updated_at)
            for check in checks(record.config)
        )

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run checks until cancelled."""
        async with anyio.create_task_group() as tasks:
            for _, record in list(self._store.scan(MACHINES)):
                self._follow(tasks, record.id, record)
            task_status.started()
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                noted, self._noted = self._noted, {}
                for machine_id in noted:
                    self._follow(tasks, machine_id, self._store.get(MACHINES, machine_id))

    def _note(self, machine_id: MachineId) -> None:
        self._noted[machine_id] = None
        self._wake.set()

    def _follow(self, tasks: TaskGroup, machine_id: MachineId, record: MachineRecord | None) -> None:
        instance = record.running.instance_id if record and record.running and record.state is State.STARTED else None
        current = self._running.get(machine_id)
        if current is not None and current[0] != instance:
            current[1].cancel()
            del self._running[machine_id]
            self._results.pop(machine_id, None)
            current = None
        if record is not None and instance is not None and current is None and checks(record.config):
            scope = anyio.CancelScope()
            self._running[machine_id] = (instance, scope)
            tasks.start_soon(self._check_machine, record, scope, name=f"check {machine_id}")

    async def _check_machine(self, record: MachineRecord, scope: anyio.CancelScope) -> None:
        with scope:
            async with anyio.create_task_group() as tasks:
                for check in checks(record.config):
                    tasks.start_soon(self._check, record, check)

    async def _check(self, record: MachineRecord, check: Check) -> None:
        probe = _probe(record, check)
        grace_ends = self._clock.monotonic() + check.grace_s
        while True:
            finding = await self._ask(probe)
            if finding.passing or self._clock.monotonic() >= grace_ends:
                self._publish(record, check, "passing" if finding.passing else "critical", finding.output)
            in_grace = self._clock.monotonic() < grace_ends and not finding.passing
            await self._clock.sleep(min(1.0, check.interval_s) if in_grace else check.interval_s)

    async def _ask(self, probe: Probe) -> ProbeResult:
        with contained("a health check", machine=probe.machine):
            return await self._prober(probe)
        return ProbeResult(False, UNFORESEEN)

    def _publish(self, record: MachineRecord, check: Check, status: str, output: str) -> None:
        results = self._results.setdefault(record.id, {})
        before, now = results.get(check.name), self._clock.now()
        results[check.name] = CheckResult(check.name, status, output, now)
        if before is None or before.status != status:
            self._changes.notify(record.id)
            if self._say is not None:
                self._say(record.app, _line(record.id, check, status, output, now))


def _line(machine_id: MachineId, check: Check, status: str, output: str, now: float) -> KeptLine:
    fails = status == "critical"
    why = f": {' '.join(output.split())[:_LINE_CHARS]}" if fails and output else ""
    level, text = "error" if fails else "info", f"health check '{check.name}' is {status}{why}"
    return KeptLine(at=int(now * 1e9), machine=machine_id, stream=0, text=text, level=level, provider=HEALTH)


def _probe(record: MachineRecord, check: Check) -> Probe:
    return Probe(
        host=record.network.private_ip,
        port=check.port,
        timeout_s=check.timeout_s,
        method=check.method,
        path=check.path if check.type == "http" else None,
        headers=check.headers,
        tls=check.protocol == "https",
        tls_verify=not check.tls_skip_verify,
        tls_server_name=check.tls_server_name,
        app=record.app,
        machine=record.id,
        ipv4=record.network.ipv4,
    )
