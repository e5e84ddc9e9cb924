"""A process with everything imported, from which daemons are forked: one that is killed has a successor at once.

Importing takes most of a boot. The template does nothing but wait: it has one thread, no event loop and no file of the
node, and holds the listening socket, so callers wait in between. What it promises:

- A daemon that a signal has ended, or its own watchdog, is forked again; soon, and later if it was not up for long.
- A daemon that ends by itself, with an error or because it was told to, is not: its status becomes the template's.
- SIGTERM and SIGINT go on to the daemon, and after them none is forked again.
- A daemon does not outlive its template: it gets SIGKILL, as from whoever killed the template. So the data directory is
  never held by a daemon that its service manager cannot see.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterable
from importlib import import_module

from hawker import log
from hawker.clock import Clock
from hawker.observe.watchdog import EXIT_STATUS

_PR_SET_PDEATHSIG = 1
_HEARD = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
_TO_STOP = frozenset({signal.SIGTERM, signal.SIGINT})
_LONG_UP_S = 10.0
_AT_ONCE = 3
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 30.0
_LOADED_AT_BOOT = (
    "anyio._backends._asyncio",
    "anyio._core._signals",
    "anyio._core._subprocesses",
    "uvloop",
    "uvicorn.lifespan.off",
    "uvicorn.loops.uvloop",
)
"""The modules that libraries import by name when a daemon boots."""

_log = log.bind("hawker.template")
_libc = ctypes.CDLL(None, use_errno=True)


def pause_s(deaths: int) -> float:
    """The seconds to wait after so many deaths in a row of daemons that were not up for `_LONG_UP_S` seconds. The first
    `_AT_ONCE` have a successor at once."""
    extra = deaths - _AT_ONCE - 1
    return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(extra, 16)) if extra >= 0 else 0.0


class Template:
    """`daemon` runs a daemon and returns its exit status; `modules` are what it will import when it boots."""

    def __init__(self, daemon: Callable[[], int], clock: Clock, modules: Iterable[str] = ()) -> None:
        self._daemon = daemon
        self._clock = clock
        self._modules = (*_LOADED_AT_BOOT, *modules)
        self._stopped = False

    def run(self) -> int:
        """The status of the daemon that was the last one. Returns in the daemons, too, with their own status: what
        follows in the caller ends that process. Raises whatever `daemon` raises, there."""
        for name in self._modules:
            import_module(name)
        deaths = 0
        signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        while True:
            began = self._clock.monotonic()
            child = self._fork()
            if child == 0:
                return self._daemon()
            status = self._until_ended(child)
            if self._stopped or not _was_killed(status):
                return _pass_on(status)
            deaths = deaths + 1 if self._clock.monotonic() - began < _LONG_UP_S else 1
            wait_s = pause_s(deaths)
            _log.warning("daemon killed", extra={"status": status, "deaths": deaths, "next_in_s": wait_s})
            if wait_s and signal.sigtimedwait(_TO_STOP, wait_s) is not None:
                return 0

    def _fork(self) -> int:
        """0 in the daemon."""
        assert len(os.listdir("/proc/self/task")) == 1, "a process with threads must not be forked"
        sys.stdout.flush()
        sys.stderr.flush()
        template = os.getpid()
        child = os.fork()
        if child == 0:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != template:  # it has ended before that
                os._exit(EXIT_STATUS)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        return child

    def _until_ended(self, child: int) -> int:
        """Its exit status; below 0 for the signal that ended it."""
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid == child:
                return os.waitstatus_to_exitcode(status)
            heard = signal.sigwait(_HEARD)
            if heard in _TO_STOP:
                self._stopped = True
                os.kill(child, heard)


def _was_killed(status: int) -> bool:
    return status < 0 or status == EXIT_STATUS


def _pass_on(status: int) -> int:
    """As the daemon ended, so does the template: by the same signal, if it was one."""
    if status < 0:
        if -status in _TO_STOP:
            signal.signal(-status, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        os.kill(os.getpid(), -status)
    return status
