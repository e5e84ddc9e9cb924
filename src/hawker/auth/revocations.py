"""Revocations."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from hawker.clock import Clock
from hawker.record.node import REVOKED, Revocation
from hawker.store.contract import Store


class Ended(Protocol):
    """What was revoked, as `tokens` and the answers about tokens ask it."""

    def __call__(self, ids: Sequence[str]) -> bool: ...

    async def add(self, token_id: str, *, by: str, note: str = "") -> Revocation:
        """Durable when it returns; the first one stands."""

    def list(self) -> Iterable[Revocation]: ...


class Revocations:
    """Keeps `Ended` for one node."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def __call__(self, ids: Sequence[str]) -> bool:
        return any(self._store.get(REVOKED, token_id) is not None for token_id in ids)

    async def add(self, token_id: str, *, by: str, note: str = "") -> Revocation:
        """Durable when it returns; the first one stands."""
        made = Revocation(token_id=token_id, at=self._clock.now(), by=by, note=note)
        there = self._store.get(REVOKED, token_id)
        if there is None:
            await self._store.write(lambda tx: tx.put(REVOKED, token_id, made))
        return there or made

    def list(self) -> Iterator[Revocation]:
        return (revocation for _, revocation in self._store.scan(REVOKED))
