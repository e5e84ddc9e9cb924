"""What a majority (quorum) of nodes agrees to in a fleet in which nobody is in charge: the name of an app, the number
of its private network, and whose a host name is.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from operator import itemgetter

from msgspec.structs import replace

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
from hawker.value_object import ValueObject

KEEPERS = 3
ABANDONED_S = 60.0
"""The seconds after which a name that is kept belongs to nobody, unless there is an app of that name."""
_BEHALF = "certificates"
TAKEN = "Validation failed: Name has already been taken"


def keepers(name: str, nodes: Iterable[NodeId]) -> tuple[NodeId, ...]:
    """The nodes that keep a name, whoever asks."""

    def weight(node: NodeId) -> bytes:
        return blake2b(f"{node}/{name}".encode(), digest_size=8).digest()

    return tuple(sorted(nodes, key=weight, reverse=True)[:KEEPERS])


class KeptName(ValueObject, frozen=True):
    """The name of an app that is kept for a claim, and the app's home by that claim. `new` are the keepers that keep it
    since this call and may be asked to release it: what another broker claimed with the same key is that one's."""

    name: AppName
    claim: str
    """The client's idempotency key, or an id that nobody else has."""
    home: NodeId
    new: tuple[NodeId, ...]


class NameQuorum:
    def __init__(self, directory: Directory, asking: FanOut) -> None:
        self._directory = directory
        self._fan_out = asking

    async def keep(self, name: AppName, claim: str, home: NodeId, behalf: str, *, shared: bool = False) -> KeptName:
        """Keeps a name for this claim alone, from now on; `shared`: others may bring it, too, since it is a client's
        key. Raises `NameTaken`, and `Unavailable` when too few keepers answer, or keep it for one home: then this call
        keeps nothing."""
        among, request = self.keepers(name), NameRequest(claim=claim, home=home)
        homes, new, silent = Counter[str](), list[NodeId](), list[HawkerError]()

        def kept_for(chosen: str) -> KeptName:
            alone = not shared or len(new) > len(among) // 2  # and no other broker has most of them
            return KeptName(name=name, claim=claim, home=NodeId(chosen), new=among if alone else tuple(new))

        for node in among:  # one after the other, in an order that all brokers have: whoever is first at one goes on
            try:
                kept = await self._keep_at(node, name, request, behalf)
            except HawkerError as error:
                silent.append(error)
                continue
            is_new = (kept.claim, kept.home) == (claim, home) and not kept.age_s
            if is_new:
                new.append(node)
            if kept.claim != claim or (kept.taken and (is_new or not shared)):
                await self.release(kept_for(home), behalf)
                raise NameTaken(TAKEN)
            homes[kept.home] += 1
            request = replace(request, home=kept.home)  # as another broker said that was first
        chosen, count = max(homes.items(), key=itemgetter(1), default=(home, 0))
        found = kept_for(chosen)
        if count <= len(among) // 2:
            await self.release(found, behalf)
            reasons = "; ".join(map(str, silent))
            raise Unavailable(f"too few of the nodes that keep the name '{name}' answer: nothing was made: {reasons}")
        if chosen != home and new:
            await self.release(found, behalf)  # those few would say another home than the others
        return found

    async def release(self, kept: KeptName, behalf: str) -> None:
        """Releases what this call kept, as far as its keepers answer; the others notice that there is no such app."""
        await self._release(kept.name, kept.claim, kept.new, behalf)

    async def give_up(self, name: AppName, behalf: str) -> None:
        """Whomever it is kept for: its app is gone."""
        await self._release(name, "", self.keepers(name), behalf)

    async def _release(self, name: AppName, claim: str, nodes: Iterable[NodeId], behalf: str) -> None:
        async def one(caller: Caller) -> None:
            await caller.call(RELEASE_NAME, params=AppParams(app_name=name), query=ReleaseQuery(claim=claim))

        await self._fan_out.every(nodes, behalf, one)

    def keepers(self, name: AppName) -> tuple[NodeId, ...]:
        return keepers(name, [node.id for node in self._directory.nodes()])

    async def _keep_at(self, node: NodeId, name: AppName, request: NameRequest, behalf: str) -> NameKept:
        """Whom this keeper then keeps it for. Raises what kept it from answering."""
        kept = await self._ask(node, name, request, behalf)
        if kept.claim == request.claim:
            over = kept.home != request.home and not kept.taken and self._directory.node(NodeId(kept.home)) is None
        else:
            over = await self._abandoned(name, kept, behalf)
        if over:
            kept = await self._ask(node, name, replace(request, instead_of=kept.claim), behalf)
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
    """The keepers of host names, asked by an app's `home` before the app has a new host name. Host names live in the
    certificates of that node, so it alone knows when the app gives one up."""

    def __init__(self, home: NodeId, directory: Directory, index: AppIndex, asking: FanOut) -> None:
        self._home = home
        self._directory = directory
        self._index = index
        self._fan_out = asking

    def keepers(self, hostname: str) -> tuple[NodeId, ...]:
        return keepers(f"host:{hostname}", [node.id for node in self._directory.nodes()])

    async def keep(self, hostname: str, app: AppName, org: str) -> None:
        """Keeps a host name for this app alone, from now on. Raises `Unprocessable` where it is another app's,
        `QuotaExceeded` when too many keepers have as many of the organization as they may, and `Unavailable` when too
        few answer: then nothing is kept, also at keepers whose answer was lost."""
        try:
            await self.affirm(hostname, app, org)
        except HawkerError:
            await self.release(hostname, app)
            raise

    async def affirm(self, hostname: str, app: AppName, org: str) -> None:
        """As `keep`, for a name that the app has: what is kept stays kept when this raises, since claims that were made
        long ago are among it."""
        request = HostnameRequest(app=app, home=self._home, org=org)
        among = self.keepers(hostname)
        got, silent = 0, list[HawkerError]()
        for node in among:  # one after the other, as for the names of apps
            try:
                kept = await self._keep_at(node, hostname, request)
            except Unprocessable:
                raise
            except HawkerError as error:
                silent.append(error)
                continue
            if kept.app != app:
                raise Unprocessable(f"hostname: {hostname} is another app's")
            got += 1
        if got <= len(among) // 2:
            for refusal in silent:
                if isinstance(refusal, QuotaExceeded):
                    raise refusal
            reasons = "; ".join(map(str, silent))
            raise Unavailable(f"too few nodes answer that keep whose {hostname} is: nothing was made: {reasons}")

    async def release(self, hostname: str, app: AppName) -> None:
        """Releases a host name, as far as the keepers answer; the others notice that the app does not have it."""

        async def one(caller: Caller) -> None:
            query = ReleaseHostnameQuery(app=app)
            await caller.call(RELEASE_HOSTNAME, params=HostnameParams(hostname=hostname), query=query)

        with suppress(HawkerError):
            await self._fan_out.every(self.keepers(hostname), _BEHALF, one)

    async def _keep_at(self, node: NodeId, hostname: str, request: HostnameRequest) -> HostnameKept:
        kept = await self._ask(node, hostname, request)
        if kept.app != request.app and await self._abandoned(hostname, kept):
            kept = await self._ask(node, hostname, replace(request, instead_of=kept.app))
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
