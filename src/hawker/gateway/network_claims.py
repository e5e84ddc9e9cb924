"""The numbers of private networks in a fleet in which nobody is in charge: a majority of the three nodes that a number
itself chooses says whose it is, for good. The home of an app is told what they said before the app is made there, and
from then on the number travels with the app: nobody computes it again.

An app in a network that there is already asks nobody; a new network waits for the majority, and is refused without it.
"""

from itertools import islice

from hawker.api.caller import Caller
from hawker.api.contract.owner import KEEP_NETWORK, NetworkKept, NetworkParams, NetworkRequest
from hawker.api.directory import AppIndex, Directory
from hawker.app import network_id, network_ids
from hawker.errors import HawkerError, NotFound, Unavailable, Unprocessable
from hawker.gateway.fan_out import FanOut
from hawker.gateway.name_quorum import keepers
from hawker.ids import NodeId

TRIES = 16


class NetworkClaims:
    def __init__(self, directory: Directory, index: AppIndex, asking: FanOut) -> None:
        self._directory = directory
        self._index = index
        self._fan_out = asking

    async def settle(self, org: str, network: str, home: NodeId, behalf: str) -> None:
        """`home` knows the number of this pair's network. Raises `Unavailable` when too few keepers answer,
        `Unprocessable` when they keep too many for the organization."""
        number = self._index.network_of(org, network)
        if number is None:
            number = await self._claimed(org, network, behalf)
        request = NetworkRequest(org=org, network=network, settled=True)
        try:
            await self._ask(home, number, request, behalf)
        except NotFound:  # of the version before, which computes it
            if number != network_id(org, network):
                raise

    async def _claimed(self, org: str, network: str, behalf: str) -> int:
        for number in islice(network_ids(org, network), TRIES):
            if any(pair != (org, network) for pair in self._index.pairs_of(number)):
                continue
            if await self._is_ours(number, NetworkRequest(org=org, network=network), behalf):
                return number
        raise Unavailable(f"the numbers that network '{network}' could have are all another's: choose another name")

    async def _is_ours(self, number: int, request: NetworkRequest, behalf: str) -> bool:
        """One keeper after the other, in an order that all brokers have: of two at once one has the majority."""
        among = keepers(f"network:{number}", [node.id for node in self._directory.nodes()])
        ours, others, silent = 0, 0, list[HawkerError]()
        for node in among:
            try:
                kept = await self._ask(node, number, request, behalf)
            except HawkerError as error:
                silent.append(error)
                continue
            mine = (kept.org, kept.network) == (request.org, request.network)
            ours, others = ours + mine, others + (not mine)
        if ours > len(among) // 2:
            return True
        if others + ours == len(among) or others > len(among) // 2:
            return False
        for refusal in silent:
            if isinstance(refusal, Unprocessable):
                raise refusal
        reasons = "; ".join(map(str, silent))
        raise Unavailable(f"too few nodes answer to make the new network '{request.network}': {reasons}")

    async def _ask(self, node: NodeId, number: int, request: NetworkRequest, behalf: str) -> NetworkKept:
        async def one(caller: Caller) -> NetworkKept:
            return await caller.call(KEEP_NETWORK, params=NetworkParams(number=f"{number:08x}"), body=request)

        asked = await self._fan_out.every((node,), behalf, one)
        for _, kept in asked.answers:
            return kept
        raise asked.silent[0][1] if asked.silent else Unavailable(f"node {node} keeps no networks")
