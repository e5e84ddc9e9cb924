"""A real node for a test, which leaves nothing behind."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from hawker.chaos.daemon import HAWKER, LIMITS, Daemon
from hawker.clock import SystemClock
from tests.node_ids import own_node_id

__all__ = ["HAWKER", "RunningNode", "running_node"]


class RunningNode(Daemon):
    """A `Daemon` in real time."""

    def __init__(self, place: Path, *flags: str, before_it: Sequence[str] = ()) -> None:
        super().__init__(place, SystemClock(), *flags, before_it=before_it)

    def launch(self, *flags: str, failpoint: str | None = None) -> Self:
        """In a new directory it goes by an id that begins as no other node's on this host; unless another command runs
        it, which may have another user."""
        if not self.before_it and not self.data_dir.exists():
            self.data_dir.mkdir(mode=0o700)
            self.place.remember(own_node_id())
        return super().launch(*flags, failpoint=failpoint)


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
