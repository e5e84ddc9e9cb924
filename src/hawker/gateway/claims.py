"""What a majority (quorum) of nodes agrees to in a fleet in which nobody is in charge: the name of an app, the number
of its private network, and whose a host name is.
"""

from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from itertools import islice

import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.app import GET_APP, AppParams
from hawker.api.contract.certificate import GET_CERTIFICATE, CertificateParams
from hawker.api.contract.owner import (
    KEEP_HOSTNAME,
    KEEP_NAME,
    KEEP_NETWORK,
    RELEASE_HOSTNAME,
    RELEASE_NAME,
    HostnameKept,
    HostnameParams,
    HostnameRequest,
    NameKept,
    NameRequest,
    NetworkKept,
    NetworkParams,
    NetworkRequest,
    ReleaseHostnameQuery,
    ReleaseQuery,
)
from hawker.api.directory import AppIndex, Directory
from hawker.app import network_id, network_ids
from hawker.errors import HawkerError, NameTaken, NotFound, QuotaExceeded, Unavailable, Unprocessable
from hawker.gateway.fan_out import FanOut
from hawker.ids import AppName, NodeId

KEEPERS = 3
ABANDONED_S = 60.0
"""After so long a name that is kept belongs to nobody, unless there is an app of that name."""
_BEHALF = "certificates"
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


class HostnameQuorum:
    """Asked by an app's `home` before the app has a new host name. Host names live in the certificates of that node, so
    it alone knows when the app gives one up."""

    def __init__(self, home: NodeId, directory: Directory, index: AppIndex, asking: FanOut) -> None:
        self._home = home
        self._directory = directory
        self._index = index
        self._fan_out = asking

    def keepers(self, hostname: str) -> tuple[NodeId, ...]:
        return keepers(f"host:{hostname}", [node.id for node in self._directory.nodes()])

    async def keep(self, hostname: str, app: AppName, org: str) -> None:
        """For this app alone, from now on. Raises `Unprocessable` where it is another app's, `QuotaExceeded` when too
        many keepers have as many of the organization as they may, and `Unavailable` when too few answer: then nothing
        is kept."""
        request = HostnameRequest(app=app, home=self._home, org=org)
        among = self.keepers(hostname)
        got, silent = 0, list[HawkerError]()
        for node in among:  # one after the other, as for the names of apps
            try:
                kept = await self._keep_at(node, hostname, request)
            except Unprocessable:
                await self.release(hostname, app)
                raise
            except HawkerError as error:
                silent.append(error)
                continue
            if kept.app != app:
                await self.release(hostname, app)
                raise Unprocessable(f"hostname: {hostname} is another app's")
            got += 1
        if got <= len(among) // 2:
            await self.release(hostname, app)
            for refusal in silent:
                if isinstance(refusal, QuotaExceeded):
                    raise refusal
            reasons = "; ".join(map(str, silent))
            raise Unavailable(f"too few nodes answer that keep whose {hostname} is: nothing was made: {reasons}")

    async def release(self, hostname: str, app: AppName) -> None:
        """As far as the keepers answer; the others notice that the app does not have it."""

        async def one(caller: Caller) -> None:
            query = ReleaseHostnameQuery(app=app)
            await caller.call(RELEASE_HOSTNAME, params=HostnameParams(hostname=hostname), query=query)

        with suppress(HawkerError):
            await self._fan_out.every(self.keepers(hostname), _BEHALF, one)

    async def _keep_at(self, node: NodeId, hostname: str, request: HostnameRequest) -> HostnameKept:
        kept = await self._ask(node, hostname, request)
        if kept.app != request.app and await self._abandoned(hostname, kept):
            kept = await self._ask(node, hostname, msgspec.structs.replace(request, instead_of=kept.app))
        return kept

    async def _ask(self, node: NodeId, hostname: str, request: HostnameRequest) -> HostnameKept:
        async def one(caller: Caller) -> HostnameKept:
            return await caller.call(KEEP_HOSTNAME, params=HostnameParams(hostname=hostname), body=request)

        asked = await self._fan_out.every((node,), _BEHALF, one)
        for _, kept in asked.answers:
            return kept
        raise asked.silent[0][1] if asked.silent else Unavailable(f"node {node} keeps no host names")

    async def _abandoned(self, hostname: str, kept: HostnameKept) -> bool:
        """Whether the app that it is kept for does not have it, and will not: its call was cut short, or its release.
        The host names of an app whose home was forgotten stay the app's for as long as it is there."""
        if kept.age_s < ABANDONED_S:
            return False
        home, app = NodeId(kept.home), AppName(kept.app)
        if self._directory.node(home) is None:
            return not self._index.app(app)
        params = CertificateParams(app_name=app, hostname=hostname)
        try:
            await self._fan_out.reach.caller(home, _BEHALF).call(GET_CERTIFICATE, params=params)
        except NotFound:
            return True
        except HawkerError:
            return False
        return False
