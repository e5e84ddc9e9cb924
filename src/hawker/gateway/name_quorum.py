"""One app for one name, in a fleet in which nobody is in charge: a majority of three nodes that the name itself chooses
(rendezvous hashing) keeps it for whoever asked them first. Brokers that want a name at the same moment ask the same
three in the same order, and only one of them gets two.

In a partition the side with the majority of a name's keepers makes apps of that name, the other is refused. While nodes
join or are forgotten two brokers may see other keepers for a moment; then the catalog's word is what is left.
"""

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.app import GET_APP, AppParams
from hawker.api.contract.owner import KEEP_NAME, RELEASE_NAME, NameKept, NameRequest, ReleaseQuery
from hawker.api.directory import Directory
from hawker.errors import HawkerError, NameTaken, NotFound, Unavailable
from hawker.gateway.fan_out import FanOut
from hawker.ids import AppName, NodeId

KEEPERS = 3
ABANDONED_S = 60.0
"""After so long a name that is kept belongs to nobody, unless there is an app of that name."""
TAKEN = "Validation failed: Name has already been taken"


def keepers(name: str, nodes: Iterable[NodeId]) -> tuple[NodeId, ...]:
    """The nodes that keep a name, whoever asks."""

    def weight(node: NodeId) -> bytes:
        return blake2b(f"{node}/{name}".encode(), digest_size=8).digest()

    return tuple(sorted(nodes, key=weight, reverse=True)[:KEEPERS])


class NameQuorum:
    def __init__(self, directory: Directory, asking: FanOut) -> None:
        self._directory = directory
        self._fan_out = asking

    async def keep(self, name: AppName, claim: str, home: NodeId, behalf: str) -> None:
        """For this claim alone, from now on. Raises `NameTaken`, and `Unavailable` when too few keepers answer: then
        nothing is kept."""
        among = self.keepers(name)
        got, silent = 0, list[HawkerError]()
        for node in among:  # one after the other, in an order that all brokers have: whoever is first at one goes on
            try:
                kept = await self._keep_at(node, name, NameRequest(claim=claim, home=home), behalf)
            except HawkerError as error:
                silent.append(error)
                continue
            if kept.claim != claim or kept.taken:
                await self.release(name, claim, behalf)
                raise NameTaken(TAKEN)
            got += 1
        if got <= len(among) // 2:
            await self.release(name, claim, behalf)
            reasons = "; ".join(map(str, silent))
            raise Unavailable(f"too few of the nodes that keep the name '{name}' answer: nothing was made: {reasons}")

    async def release(self, name: AppName, claim: str, behalf: str) -> None:
        """As far as the keepers answer; the others notice that there is no such app. An empty claim is anybody's."""

        async def one(caller: Caller) -> None:
            await caller.call(RELEASE_NAME, params=AppParams(app_name=name), query=ReleaseQuery(claim=claim))

        await self._fan_out.every(self.keepers(name), behalf, one)

    def keepers(self, name: AppName) -> tuple[NodeId, ...]:
        return keepers(name, [node.id for node in self._directory.nodes()])

    async def _keep_at(self, node: NodeId, name: AppName, request: NameRequest, behalf: str) -> NameKept:
        """Whom this keeper then keeps it for. Raises what kept it from answering."""
        kept = await self._ask(node, name, request, behalf)
        if kept.claim != request.claim and await self._abandoned(name, kept, behalf):
            kept = await self._ask(node, name, msgspec.structs.replace(request, instead_of=kept.claim), behalf)
        return kept

    async def _ask(self, node: NodeId, name: AppName, request: NameRequest, behalf: str) -> NameKept:
        async def one(caller: Caller) -> NameKept:
            return await caller.call(KEEP_NAME, params=AppParams(app_name=name), body=request)

        asked = await self._fan_out.every((node,), behalf, one)
        for _, kept in asked.answers:
            return kept
        raise asked.silent[0][1] if asked.silent else Unavailable(f"node {node} keeps no names")

    async def _abandoned(self, name: AppName, kept: NameKept, behalf: str) -> bool:
        """Whether whom it is kept for made no app of it, and will not any more."""
        if kept.taken or kept.age_s < ABANDONED_S:
            return False
        home = NodeId(kept.home)
        if self._directory.node(home) is None:
            return True  # it was forgotten
        try:
            await self._fan_out.reach.caller(home, behalf).call(GET_APP, params=AppParams(app_name=name))
        except NotFound:
            return True
        except HawkerError:
            return False
        return False
