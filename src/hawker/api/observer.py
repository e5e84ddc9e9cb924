"""Who watches the server at work, behind a protocol, so that the API knows nothing of metrics."""

from typing import Protocol


class Observer(Protocol):
    """Told in the event loop's thread. Must be quick and must not raise."""

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is a path of the route table, or `-` for a path that is not in it; `status` 0 means that the client
        went before its answer. `method` is as the client sent it, `SOCKET` for a conversation."""


class Silent:
    """Keeps `Observer`, and nothing else."""

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        pass
