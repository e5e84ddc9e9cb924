"""Keeps a node's daemon living while others hurt it: starts it again, holds the clients' connection to it, measures for
how long it did not answer, and notices an end that nobody asked for.
"""

import signal

import anyio
from anyio.to_thread import run_sync

from hawker.api.client import Client
from hawker.api.contract.node import HEALTH
from hawker.chaos.daemon import Daemon
from hawker.chaos.tally import SoakFinding, SoakTally
from hawker.cli.exits import ExitStatus
from hawker.clock import Clock
from hawker.errors import HawkerError, Unavailable

_PROBE_EVERY_S = 0.05
_PROBE_TIMEOUT_S = 0.5
READY_WITHIN_S = 90.0
_MAY_WAIT_S = 8.0
_LOOK_EVERY_S = 0.005
_LAST_WORDS = 1500
_REQUEST = '"message":"request"'
ANSWERS_WITHIN_S = 90.0
"""After whatever was done to it has ended, a node answers again by itself."""


class DaemonSupervisor:
    """One daemon. `wanted` while it should be living; `answers` as last probed."""

    def __init__(self, daemon: Daemon, clock: Clock, tally: SoakTally) -> None:
        self.daemon = daemon
        self.wanted = False
        self.answers = False
        self._clock = clock
        self.tally = tally
        self._began = clock.monotonic()
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """A client of the latest life; calls on a dead one say so."""
        assert self._client is not None, "never started"
        return self._client

    # Life and death.

    async def start(self) -> None:
        """Begin a life. Raises `Unavailable` when it does not get ready; then it is over."""
        if not await self._begin(READY_WITHIN_S):
            raise Unavailable(f"the node is not ready: {self.daemon.errors[-_LAST_WORDS:]}")

    async def try_start(self) -> bool:
        """Begin a life where one need not get ready: it may be refused, with the status that says so, or wait."""
        if await self._begin(_MAY_WAIT_S):
            return True
        status = self.daemon.ended()
        if status not in (ExitStatus.USAGE, -signal.SIGKILL):
            self.note(f"ended with status {status} instead of saying that it cannot start")
        return False

    async def _begin(self, within_s: float) -> bool:
        """False when it ended instead, or was ended because it took longer."""
        began = self._clock.monotonic()
        await run_sync(self.daemon.launch)
        with anyio.move_on_after(within_s):
            while self.daemon.alive and not self.daemon.ready:
                await self._clock.sleep(_LOOK_EVERY_S)
        if not self.daemon.ready or not self.daemon.alive:
            await self.kill()
            return False
        self.tally.boots_ms.append((self._clock.monotonic() - began) * 1000)
        earlier, self._client = self._client, self.daemon.client()
        if earlier is not None:
            await earlier.close()
        self.wanted = True
        return True

    async def kill(self) -> None:
        self.wanted = False
        await run_sync(self.daemon.kill)

    async def stop(self) -> None:
        """Raises `Unavailable` when it ended badly."""
        self.wanted = False
        await run_sync(self.daemon.stop)

    def signal(self, number: signal.Signals) -> None:
        self.daemon.process.send_signal(number)

    async def cut(self) -> None:
        """Every connection that clients have to it is closed, whatever is under way on it."""
        if self._client is not None:
            await self._client.close()

    async def answering(self) -> float:
        """Return once it answers, with the seconds that took. Notes a finding when it does not in time."""
        began = self._clock.monotonic()
        with anyio.move_on_after(ANSWERS_WITHIN_S) as scope:
            while not await self._probe():
                await self._clock.sleep(_PROBE_EVERY_S)
        if scope.cancelled_caught:
            self.note(f"did not answer within {ANSWERS_WITHIN_S:g} s")
        return self._clock.monotonic() - began

    # Watching.

    async def watch(self) -> None:
        """Until cancelled: measure when it does not answer, and bring it back when it ended by itself."""
        silent_since: float | None = None
        while True:
            self.answers = await self._probe()
            now = self._clock.monotonic()
            if self.answers and silent_since is not None:
                self.tally.gaps_s.append(now - silent_since)
            silent_since = None if self.answers else silent_since or now
            if self.wanted and not self.daemon.alive:
                self.answers, silent_since = False, silent_since or now  # it may have answered just before it ended
                self.note(f"ended by itself with status {self.daemon.ended()}")
                await self._bring_back()
            await self._clock.sleep(_PROBE_EVERY_S)

    async def _bring_back(self) -> None:
        try:
            await self.start()
        except Unavailable as error:
            self.note(f"cannot be brought back: {error}")

    async def _probe(self) -> bool:
        try:
            await self.client.call(HEALTH, timeout_s=_PROBE_TIMEOUT_S)
        except HawkerError:
            return False
        return True

    def note(self, what: str) -> None:
        """A finding, once, with the end of the daemon's log."""
        if all(found.what != what for found in self.tally.findings):
            at_s = self._clock.monotonic() - self._began
            self.tally.findings.append(SoakFinding(at_s, what, _telling(self.daemon.errors)))


def _telling(log: str) -> str:
    """Without the lines that only say who asked."""
    return "\n".join(line for line in log.splitlines() if _REQUEST not in line)
