"""Which tokens no longer count. Kept in the node's store, by the token's id; an id stands for all that was narrowed
from it."""

from collections.abc import Iterator, Sequence

import msgspec

from hawker.clock import Clock
from hawker.store.contract import Bucket, Store


class Revocation(msgspec.Struct, frozen=True, kw_only=True):
    """`at` is Unix seconds, `by` the name of who asked."""

    token_id: str
    at: float
    by: str
    note: str = ""


REVOKED = Bucket("revoked_tokens", Revocation)


class Revocations:
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
