"""Which tokens no longer count. Kept in the node's store, by the token's id; an id stands for all that was narrowed
from it. In a fleet each node tells the others through the catalog, and a broker hears of all."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from hawker.api.contract.token import REVOKE_TOKEN, RevokeTokenRequest
from hawker.api.directory import Peers
from hawker.auth.revocations import Ended
from hawker.ids import NodeId
from hawker.record.node import Revocation


class FleetRevocations:
    """Keeps `Ended` for a fleet. `told` is what the catalog has of all nodes; `mine` is kept where this broker's node
    keeps it, and counts here at once."""

    def __init__(self, told: Callable[[], Mapping[str, Revocation]], mine: Ended) -> None:
        self._told = told
        self._mine = mine

    def __call__(self, ids: Sequence[str]) -> bool:
        told = self._told()
        return any(token_id in told for token_id in ids) or self._mine(ids)

    async def add(self, token_id: str, *, by: str, note: str = "") -> Revocation:
        there = self._told().get(token_id)
        return there or await self._mine.add(token_id, by=by, note=note)

    def list(self) -> Iterable[Revocation]:
        found = {each.token_id: each for each in self._mine.list()} | dict(self._told())
        return sorted(found.values(), key=lambda each: (each.at, each.token_id))


class RemoteRevocations:
    """Keeps `Ended` for a broker that is a process of its own: its `node` writes them down. What this broker has sent
    there is known here until the catalog has it."""

    def __init__(self, peers: Peers, node: NodeId) -> None:
        self._peers = peers
        self._node = node
        self._sent: dict[str, Revocation] = {}

    def __call__(self, ids: Sequence[str]) -> bool:
        return any(token_id in self._sent for token_id in ids)

    async def add(self, token_id: str, *, by: str, note: str = "") -> Revocation:
        caller = self._peers.caller(self._node, behalf=by)
        made = await caller.call(REVOKE_TOKEN, body=RevokeTokenRequest(token_id=token_id, note=note))
        sent = Revocation(token_id=token_id, at=made.revoked_at.timestamp(), by=made.revoked_by, note=made.note)
        self._sent[token_id] = sent
        return sent

    def list(self) -> Iterable[Revocation]:
        return tuple(self._sent.values())
