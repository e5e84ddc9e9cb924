"""A host that starts no machine while it is told so: what its daemon finds as crun refuses to run."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hawker.chaos.daemon import Daemon
from hawker.errors import CannotStart

BY_CRUN = ("--launcher", "crun")
"""What a node has to be told, or it starts most machines by a launcher of its own, and never asks."""

_PROGRAM = """#!/bin/sh
for word; do
    if [ "$word" = run ] && [ -e {flag} ]; then exit 1; fi
done
exec {crun} "$@"
"""


def make_refusable(daemon: Daemon) -> None:
    """Its next lives find such a crun first. Raises `CannotStart` where there is none."""
    crun = shutil.which("crun")
    if crun is None:
        raise CannotStart("crun is missing: apt-get install crun")
    program = daemon.directory / "bin/crun"
    program.parent.mkdir()
    program.write_text(_PROGRAM.format(flag=_flag(daemon), crun=crun))
    program.chmod(0o755)
    daemon.environment["PATH"] = f"{program.parent}:{daemon.environment['PATH']}"


@contextmanager
def refusing(daemon: Daemon) -> Iterator[None]:
    """Until then it starts none."""
    _flag(daemon).touch()
    try:
        yield
    finally:
        _flag(daemon).unlink()


def _flag(daemon: Daemon) -> Path:
    return daemon.directory / "refuses"
