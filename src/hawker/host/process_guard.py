"""Keeps a process beside the daemon alive, the warden of the host's edge or the machines' resolver: starts it, takes up
one that an earlier daemon has started, and ends it with an ephemeral node. Who holds the lock in its folder is it.
"""

import fcntl
import os
import signal
from contextlib import suppress
from pathlib import Path

import anyio

from hawker.clock import Clock
from hawker.host.own_user import make_folder
from hawker.host.spawn import own_program, reap, spawn
from hawker.log import bind

_LOG_BYTES = 1 << 20
_QUICK_S, _LONGEST_PAUSE_S = 5.0, 10.0
_ENDS_WITHIN_S = 5.0
_log = bind("hawker.beside")


class ProcessGuard:
    """Keeps one process beside the daemon alive. `folder` is the program's, in the data directory; `program` is the
    command of `hawker` that it runs. A program that writes its version there begins anew after SIGHUP: it is sent
    SIGHUP when its version is not `version`. The process becomes `user` once it has begun, None for our own user."""

    def __init__(
        self, data_dir: Path, folder: Path, clock: Clock, program: str, version: str = "", user: int | None = None
    ) -> None:
        self._version = version
        self._user = user
        self._program = program
        self._data_dir = data_dir
        self._folder = folder
        self._clock = clock
        self._ending = False
        self._child: int | None = None  # the one that was started here, which may not hold the lock yet

    @property
    def is_there(self) -> bool:
        """Whether the process lives, also one that an earlier daemon has started."""
        return self._holder() is not None

    def prepare(self) -> None:
        make_folder(self._folder, self._user)

    async def serve(self) -> None:
        """Keep the process alive, until cancelled, when it lives on; or until `end` is called."""
        pause_s = 0.0
        self._renew()
        while not self._ending:
            began = self._clock.monotonic()
            await self._one_life()
            if self._ending:
                return
            lived_s = self._clock.monotonic() - began
            pause_s = 0.0 if lived_s > _QUICK_S else min(_LONGEST_PAUSE_S, 2 * pause_s + 0.1)
            _log.warning(
                "a process beside the daemon ended",
                extra={"program": self._program, "lived_s": round(lived_s, 1), "next_in_s": pause_s},
            )
            await self._clock.sleep(pause_s)

    async def end(self) -> None:
        """End the process. Returns when it has ended, or after 5 s; no other is started."""
        self._ending = True
        holder = self._holder() or self._child
        if holder is None:
            return
        try:
            handle = os.pidfd_open(holder)
        except ProcessLookupError:
            return
        try:
            if holder in (self._holder(), self._child):
                signal.pidfd_send_signal(handle, signal.SIGTERM)
                with anyio.move_on_after(_ENDS_WITHIN_S):
                    await anyio.wait_readable(handle)
        finally:
            os.close(handle)

    def _renew(self) -> None:
        with suppress(OSError):
            written = (self._folder / "version").read_text()
            holder = self._holder()
            if self._version and holder is not None and written != self._version:
                _log.info("a process beside the daemon is renewed", extra={"program": self._program, "was": written})
                handle = os.pidfd_open(holder)
                try:
                    if self._holder() == holder:
                        signal.pidfd_send_signal(handle, signal.SIGHUP)
                finally:
                    os.close(handle)

    async def _one_life(self) -> None:
        holder = self._holder()
        if holder is None:
            self._child = self._start()
            await reap(self._child)
            self._child = None  # and not where this is cancelled: `end` may come after that
            return
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(holder)
            try:
                if self._holder() == holder:  # and not another process that has its number by now
                    await anyio.wait_readable(handle)
            finally:
                os.close(handle)

    def _start(self) -> int:
        file = self._folder / "log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        if file.exists() and file.stat().st_size > _LOG_BYTES:
            flags |= os.O_TRUNC
        log = os.open(file, flags, 0o600)
        try:
            return spawn((*own_program(), self._program, *self._options()), session=True, stdio=log)
        finally:
            os.close(log)

    def _options(self) -> tuple[str, ...]:
        user = () if self._user is None else ("--user", str(self._user))
        return ("--data-dir", str(self._data_dir), *user)

    def _holder(self) -> int | None:
        """The process id that the holder of the lock has left."""
        try:
            lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(lock, 32, 0).strip()
            return int(text) if text.isdigit() else None
        finally:
            os.close(lock)
        return None
