"""A real node for a test, which leaves nothing behind."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hawker.chaos.daemon import HAWKER, LIMITS, Daemon
from hawker.clock import SystemClock

__all__ = ["HAWKER", "RunningNode", "running_node"]


class RunningNode(Daemon):
    """A `Daemon` in real time."""

    def __init__(self, place: Path, *flags: str, before_it: Sequence[str] = ()) -> None:
        super().__init__(place, SystemClock(), *flags, before_it=before_it)


@contextmanager
def running_node(
    place: Path, *flags: str, before_it: Sequence[str] = (), limited: bool = False
) -> Iterator[RunningNode]:
    """A node that is up. At the end it is gone, and so is everything that bears its directory or its id. It answers as
    fast as tests ask, unless `limited`: then it counts calls, as a node of a fleet does."""
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o777)
    node = RunningNode(place, *flags, before_it=before_it)
    if limited:
        node.environment[LIMITS] = "true"
    try:
        yield node.start()
    finally:
        strays = node.withdraw()
    assert not strays, f"left on the host: {strays}"
    shutil.rmtree(node.data_dir)
