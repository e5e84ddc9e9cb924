"""Work in a mount namespace of its own, of which nothing is seen outside or stays: a thread enters it and ends with it.

Mounts that come or go on the host meanwhile come and go there too; the other way nothing does.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import TypeVar

from hawker.host.mount import RECURSIVE, SLAVE, mount

T = TypeVar("T")

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_FS, _CLONE_NEWNS = 0x200, 0x20000


def privately(work: Callable[[], T]) -> T:
    """Call `work` there; what it starts stays there. Raises `OSError`, and what `work` does."""

    def enter() -> T:
        if _libc.unshare(_CLONE_FS | _CLONE_NEWNS) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"mount namespace: {os.strerror(code)}")
        mount("", Path("/"), "", SLAVE | RECURSIVE)
        return work()

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="mounts") as thread:
        return thread.submit(copy_context().run, enter).result()
