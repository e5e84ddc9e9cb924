"""The calls that may last: they are ended when the server stops, where cutting a call short does no harm."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from hawker.errors import Unavailable


class Shutdown:
    """Holds the calls that end with the server."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._stopped = False

    @contextmanager
    def until_stop(self) -> Iterator[None]:
        """Raises `Unavailable` when the server stops before the block ends."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self._stopped:
                scope.cancel()
            try:
                yield
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            raise Unavailable("the node is stopping")

    def stop(self) -> None:
        """End the blocks that are under way, and every later one at once."""
        self._stopped = True
        for scope in list(self._scopes):
            scope.cancel()
