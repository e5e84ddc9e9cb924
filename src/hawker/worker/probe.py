"""One health probe of a machine, from the host: does it accept a connection, or answer HTTP with a good status?"""

from dataclasses import dataclass
from typing import Protocol

import aiohttp
import anyio

_OUTPUT_LIMIT = 2048


@dataclass(frozen=True, slots=True)
class Probe:
    """What to ask. `path` None is a plain TCP connection."""

    host: str
    port: int
    timeout_s: float
    method: str = "GET"
    path: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    tls: bool = False
    tls_verify: bool = True
    tls_server_name: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    passing: bool
    output: str


class Prober(Protocol):
    async def __call__(self, probe: Probe) -> Finding: ...


class NetworkProber:
    """Probes over the host's network. Never raises for what a machine does."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def __call__(self, probe: Probe) -> Finding:
        try:
            with anyio.fail_after(probe.timeout_s):
                return await (self._connect(probe) if probe.path is None else self._ask(probe))
        except TimeoutError:
            return Finding(False, f"no answer within {probe.timeout_s:g} s")
        except (OSError, aiohttp.ClientError, ValueError) as error:
            return Finding(False, (str(error) or type(error).__name__)[:_OUTPUT_LIMIT])

    async def _connect(self, probe: Probe) -> Finding:
        async with await anyio.connect_tcp(probe.host, probe.port):
            return Finding(True, "Success")

    async def _ask(self, probe: Probe) -> Finding:
        host = f"[{probe.host}]" if ":" in probe.host else probe.host
        url = f"{'https' if probe.tls else 'http'}://{host}:{probe.port}{probe.path}"
        async with self._http.request(
            probe.method,
            url,
            headers=probe.headers,
            ssl=probe.tls_verify,
            server_hostname=probe.tls_server_name,
            allow_redirects=False,
        ) as answer:
            body = (await answer.content.read(_OUTPUT_LIMIT)).decode("utf-8", "replace")
            return Finding(
                200 <= answer.status < 300, body if answer.status < 300 else f"status {answer.status}: {body}"
            )
