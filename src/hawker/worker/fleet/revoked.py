"""Tokens that were revoked at any node, as far as the catalog has heard. Kept in memory, since every call asks."""

from collections.abc import Sequence

import anyio

from hawker.catalog.contract import Catalog, Statement, Touched
from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.log import bind

TABLE = "revoked_tokens"
_ALL = Statement(query=f"SELECT token_id FROM {TABLE}")
_LOOK_EVERY_S = 10.0
_AGAIN_S = 0.5

_log = bind("hawker.revoked")


class Revoked:
    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock
        self._ids: frozenset[str] = frozenset()
        self._wake = anyio.Event()

    def __call__(self, ids: Sequence[str]) -> bool:
        return not self._ids.isdisjoint(ids)

    async def serve(self) -> None:
        """Until cancelled. Looks at each change of the table, and now and then all the same."""
        end = self._catalog.listen(self._heard)
        try:
            while True:
                self._wake = anyio.Event()
                if await self._look():
                    with anyio.move_on_after(_LOOK_EVERY_S):
                        await self._wake.wait()
                else:
                    await self._clock.sleep(_AGAIN_S)
        finally:
            end()

    def _heard(self, touched: Touched) -> None:
        if touched.everything or TABLE in touched.tables:
            self._wake.set()

    async def _look(self) -> bool:
        try:
            answer = await self._catalog.query(_ALL)
        except HawkerError as error:
            _log.warning("cannot read which tokens were revoked", extra={"error": str(error)})
            return False
        self._ids = frozenset(str(row[0]) for row in answer.rows)
        return True
