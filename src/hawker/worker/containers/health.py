"""The checks of one run of one container: asked in their time, their answers in memory, gone with the run."""

from collections.abc import Awaitable, Callable, Sequence
from typing import assert_never

import anyio

from hawker.clock import Clock
from hawker.config.effective import Healthcheck
from hawker.config.machine import ExecHealthcheck, HttpHealthcheck, TcpHealthcheck
from hawker.errors import HawkerError
from hawker.fair.turns import Turns
from hawker.ids import MachineId
from hawker.record.machine import CheckResult
from hawker.runtime.driver import Driver, ExecSession, ExecSpec
from hawker.value_object import ValueObject
from hawker.worker.health import Probe, Prober, ProbeResult

_OUTPUT_BYTES = 2048
_CLOSE_S = 5.0


class Asker:
    """`host` and `ipv4` are the machine's addresses; its probes count in the share of `app`, its commands in the
    machine's share of `commands`. Never raises for what a machine does."""

    def __init__(
        self,
        driver: Driver,
        prober: Prober,
        commands: Turns,
        machine_id: MachineId,
        host: str,
        app: str = "",
        ipv4: str | None = None,
    ) -> None:
        self._driver = driver
        self._prober = prober
        self._commands = commands
        self._machine_id = machine_id
        self._host = host
        self._app = app
        self._ipv4 = ipv4

    async def __call__(self, index: int, check: Healthcheck) -> ProbeResult:
        """`index` is the container's place in its machine."""
        match check.asks:
            case TcpHealthcheck() as tcp:
                return await self._prober(self._tcp(tcp, check.timeout_s))
            case HttpHealthcheck() as http:
                return await self._prober(self._probe(http, check.timeout_s))
            case ExecHealthcheck() as command:
                return await self._exec(ExecSpec(argv=command.command or (), process=index), check.timeout_s)
            case _:
                assert_never(check.asks)

    def _tcp(self, tcp: TcpHealthcheck, timeout_s: float) -> Probe:
        host, machine = self._host, self._machine_id
        port = tcp.port or 0
        return Probe(host=host, port=port, timeout_s=timeout_s, app=self._app, machine=machine, ipv4=self._ipv4)

    def _probe(self, http: HttpHealthcheck, timeout_s: float) -> Probe:
        return Probe(
            host=self._host,
            port=http.port or 0,
            timeout_s=timeout_s,
            method=(http.method or "GET").upper(),
            path=http.path or "/",
            headers=tuple((each.name or "", value) for each in http.headers or () for value in each.values or ()),
            tls=http.scheme == "https",
            tls_verify=not http.tls_skip_verify,
            tls_server_name=http.tls_server_name or None,
            app=self._app,
            machine=self._machine_id,
            ipv4=self._ipv4,
        )

    async def _exec(self, spec: ExecSpec, timeout_s: float) -> ProbeResult:
        try:
            async with self._commands.hold(self._machine_id):
                with anyio.fail_after(timeout_s):
                    return await self._finding(spec)
        except TimeoutError:
            return ProbeResult(False, f"the command did not end within {timeout_s:g} s")
        except (HawkerError, OSError) as error:
            return ProbeResult(False, str(error)[:_OUTPUT_BYTES])

    async def _finding(self, spec: ExecSpec) -> ProbeResult:
        session = await self._driver.exec(self._machine_id, spec)
        try:
            return await _run(session)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_S):
                await session.close()


async def _run(session: ExecSession) -> ProbeResult:
    """Passing when it exits with 0."""
    output = bytearray()
    await session.send_eof()
    async for _, data in session.output():
        output += data[: _OUTPUT_BYTES - len(output)]
    exit = await session.wait()
    text = exit.reason or output.decode("utf-8", "replace") or f"exited with {exit.exit_code}"
    return ProbeResult(exit.exit_code == 0, text)


# When a container's check passes: so many good answers in a row, or so many bad ones, turn it. Pure.


class Tally(ValueObject, frozen=True):
    """The result of a check's answers so far. `passing` is None until there were enough of one kind."""

    passing: bool | None = None
    good: int = 0
    """The good answers in a row, from 0 to as many as make the check pass; a bad answer makes it 0."""
    bad: int = 0
    """The bad answers in a row, from 0 to as many as make the check fail; a good answer makes it 0."""

    def counted(self, check: Healthcheck, good: bool) -> "Tally":
        """The tally with one more answer."""
        if good:
            enough = self.good + 1 >= check.successes
            return Tally(True if enough else self.passing, good=min(self.good + 1, check.successes))
        enough = self.bad + 1 >= check.failures
        return Tally(False if enough else self.passing, bad=min(self.bad + 1, check.failures))

    @property
    def status(self) -> str:
        """The status of the check in the words of the API."""
        return {None: "warning", True: "passing", False: "critical"}[self.passing]


# How a container's check is asked: over the machine's network as any probe, or by a command inside the container.

Ask = Callable[[Healthcheck], Awaitable[ProbeResult]]


class _State(ValueObject, frozen=True):
    tally: Tally
    output: str
    at: float


class Watch:
    """`turned` is called when a check has come to another status."""

    def __init__(self, checks: Sequence[Healthcheck], clock: Clock, ask: Ask, turned: Callable[[], None]) -> None:
        self._checks = checks
        self._clock = clock
        self._ask = ask
        self._turned = turned
        self._states = {each.name: _State(Tally(), "not checked yet", clock.now()) for each in checks}

    async def serve(self) -> None:
        """Makes the checks again and again, until cancelled."""
        async with anyio.create_task_group() as tasks:
            for check in self._checks:
                tasks.start_soon(self._check, check)

    def results(self) -> tuple[CheckResult, ...]:
        """The results of the checks, in the config's order."""
        return tuple(CheckResult(name, it.tally.status, it.output, it.at) for name, it in self._states.items())

    @property
    def healthy(self) -> bool:
        """Whether all of its checks pass."""
        return all(state.tally.passing for state in self._states.values())

    @property
    def ailing(self) -> bool:
        """Whether a check that is to stop the container is critical."""
        return any(each.stops and self._states[each.name].tally.passing is False for each in self._checks)

    async def _check(self, check: Healthcheck) -> None:
        await self._clock.sleep(check.grace_s)
        while True:
            finding = await self._ask(check)
            before = self._states[check.name]
            tally = before.tally.counted(check, finding.passing)
            self._states[check.name] = _State(tally, finding.output, self._clock.now())
            if tally.status != before.tally.status:
                self._turned()
            await self._clock.sleep(check.interval_s)
