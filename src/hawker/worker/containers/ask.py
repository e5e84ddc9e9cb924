"""How a container's check is asked: over the machine's network as any probe, or by a command inside the container."""

from typing import assert_never

import anyio

from hawker.config.containers import ExecHealthcheck, HttpHealthcheck, TcpHealthcheck
from hawker.config.effective_containers import Healthcheck
from hawker.errors import HawkerError
from hawker.ids import MachineId
from hawker.runtime.driver import Driver, ExecSession, ExecSpec
from hawker.worker.probe import Finding, Probe, Prober

_OUTPUT_BYTES = 2048
_CLOSE_S = 5.0


class Asker:
    """`host` is the machine's address. Never raises for what a machine does."""

    def __init__(self, driver: Driver, prober: Prober, machine_id: MachineId, host: str) -> None:
        self._driver = driver
        self._prober = prober
        self._machine_id = machine_id
        self._host = host

    async def __call__(self, index: int, check: Healthcheck) -> Finding:
        """`index` is the container's place in its machine."""
        match check.asks:
            case TcpHealthcheck() as tcp:
                return await self._prober(Probe(host=self._host, port=tcp.port or 0, timeout_s=check.timeout_s))
            case HttpHealthcheck() as http:
                return await self._prober(self._probe(http, check.timeout_s))
            case ExecHealthcheck() as command:
                return await self._exec(ExecSpec(argv=command.command or (), process=index), check.timeout_s)
            case _:
                assert_never(check.asks)

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
        )

    async def _exec(self, spec: ExecSpec, timeout_s: float) -> Finding:
        try:
            with anyio.fail_after(timeout_s):
                session = await self._driver.exec(self._machine_id, spec)
                try:
                    return await _run(session)
                finally:
                    with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_S):
                        await session.close()
        except TimeoutError:
            return Finding(False, f"the command did not end within {timeout_s:g} s")
        except (HawkerError, OSError) as error:
            return Finding(False, str(error)[:_OUTPUT_BYTES])


async def _run(session: ExecSession) -> Finding:
    """Passing when it exits with 0."""
    output = bytearray()
    await session.send_eof()
    async for _, data in session.output():
        output += data[: _OUTPUT_BYTES - len(output)]
    exit = await session.wait()
    text = exit.reason or output.decode("utf-8", "replace") or f"exited with {exit.exit_code}"
    return Finding(exit.exit_code == 0, text)
