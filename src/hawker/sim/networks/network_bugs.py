"""The planted bugs of private networks and host names: the simulator must find every one."""

import base64
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from hawker.app import network_id
from hawker.dns.answer import Question
from hawker.dns.resolver import AskingNetwork, NameResolver, Said
from hawker.dns.view import View
from hawker.edge.certificates import CertificateBook
from hawker.feed import SealedCertificate
from hawker.fleet.certificates import FleetCertificates
from hawker.fleet.mesh import FleetMesh
from hawker.fleet.names import FleetNames
from hawker.fleet.rows import Row
from hawker.gateway.claims import NetworkClaims
from hawker.host.mesh.wireguard import MeshPeer
from hawker.log import bind
from hawker.names import KnownNames
from hawker.proof.violation import Invariant as I
from hawker.record.app import CERTIFICATES, CertificateRecord
from hawker.secret.certificates import Certificates, FarCertificate
from hawker.sim.harness.planted_bug import PlantedBug
from hawker.sim.networks.network_host import NetworkParts, ToldNames


class _ClaimsNothing(NetworkClaims):
    """The number is computed, and nobody is asked whose it is."""

    async def _claimed(self, org: str, network: str, behalf: str) -> int:
        return network_id(org, network)


class _BelievesOneKeeper(NetworkClaims):
    """One keeper's word is enough."""

    async def _is_ours(self, number: int, request: Any, behalf: str) -> bool:
        for node in self._directory.nodes():
            kept = await self._ask(node.id, number, request, behalf)
            if (kept.org, kept.network) == (request.org, request.network):
                return True
        return False


class _AnswersAnybody(NameResolver):
    """What one network was answered is answered to the next that asks the same."""

    def at_once(self, data: bytes, asker: AskingNetwork, *, tcp: bool = False) -> bytes | Question | None:
        first = self._said.get(AskingNetwork(0), {}).get(data[2:])
        found = super().at_once(data, asker, tcp=tcp)
        if first is not None and first.until > self._clock.monotonic():
            return data[:2] + first.answer
        if isinstance(found, bytes):
            said = Said(found[2:], self._clock.monotonic() + 0.1, None)
            self._said.setdefault(AskingNetwork(0), {})[data[2:]] = said
        return found


class _NamesSleepers(ToldNames):
    """A machine that is stopped is named like one that runs."""

    def tell(self, known: KnownNames) -> None:
        super().tell(replace(known, machines=tuple(replace(each, started=True) for each in known.machines)))


class _KeepsViews(ToldNames):
    """What was true when a network asked first is true for ever."""

    def tell(self, known: KnownNames) -> None:
        views = self._views
        super().tell(known)
        self._views = views


class _LeadsToAnyFlycast(ToldNames):
    """An app's address in a private network is told to all of them."""

    def view(self, asker: AskingNetwork) -> View | None:
        view = super().view(asker)
        others = [self._views[other] for other in self._views if other != asker]
        for other in others if view is not None else ():
            for app, addresses in other.addresses.items():
                view.addresses.setdefault(app, addresses)  # type: ignore[union-attr]
        return view


class _NamesTheLost(FleetNames):
    """Machines of a host that is lost are still named."""

    def __init__(self, *given: Any, **named: Any) -> None:
        me, catalog, networks, _, *rest = given
        super().__init__(me, catalog, networks, lambda node: True, *rest, **named)


class _TakesNoWayBack(FleetMesh):
    """An address leads to a host until another one has it."""

    async def _plan(self, networks: Collection[int]) -> Mapping[str, MeshPeer]:
        wanted = dict(await super()._plan(networks))
        taken = frozenset[str]().union(*(peer.allowed for peer in wanted.values()))
        for key, peer in self._told.items():
            there = wanted.get(key, replace(peer, allowed=frozenset()))
            wanted[key] = replace(there, allowed=there.allowed | (peer.allowed - taken))
        return wanted


class _KeepsRemoved(CertificateBook):
    """The certificate of a host name that was removed is shown on."""

    def replace(self, certificates: Iterable[SealedCertificate]) -> None:
        self._of |= {each.hostname: each for each in certificates}


class _ShowsExpired(CertificateBook):
    """The certificate for the name itself is shown, whether it has expired or not."""

    def find(self, name: str) -> SealedCertificate | None:
        return self._of.get(name) or self._of.get(f"*.{name.partition('.')[2]}")


class _ShowsTheFirst(Certificates):
    """Of two homes' certificates for a name the first one's is shown."""

    def served(self) -> dict[str, CertificateRecord | FarCertificate]:
        found: dict[str, CertificateRecord | FarCertificate] = {}
        there: list[CertificateRecord | FarCertificate] = [each for far in self._far.values() for each in far]
        there += self.all()
        for each in sorted(there, key=lambda one: (one.created_at, one.app)):
            found.setdefault(each.hostname, each)
        return found


class _TellsPairs(FleetCertificates):
    """Certificates are told to other nodes with their keys, in Base64."""

    def _rows(self, key: str) -> Iterable[Row]:
        record = self._store.get(CERTIFICATES, key)
        if record is None:
            return
        for row in super()._rows(key):
            pair = base64.b64encode(self._own.opened(record)).decode()
            yield replace(row, values=tuple(pair if value == self._told_as(key) else value for value in row.values))

    def _told_as(self, key: str) -> str:
        return base64.b64encode(self._sealed[key][2]).decode()


class _LogsKeys(Certificates):
    """What is imported is in the log."""

    async def put(self, app: str, text: str, fullchain: str, private_key: str, **how: bool) -> CertificateRecord:
        _log.warning("certificate imported", extra={"app": app, "private_key": private_key})
        return await super().put(app, text, fullchain, private_key, **how)


_log = bind("hawker.certificates")


def _plant(name: str, what: str, parts: NetworkParts, *breaks: I) -> PlantedBug[NetworkParts]:
    return PlantedBug(name=name, what=what, kit=parts, breaks=frozenset(breaks))


PLANTS: tuple[PlantedBug[NetworkParts], ...] = (
    _plant(
        "number-not-claimed", "a network's number is computed only", NetworkParts(claims=_ClaimsNothing), I.OWN_NUMBER
    ),
    _plant("one-keeper", "one keeper says whose a number is", NetworkParts(claims=_BelievesOneKeeper), I.OWN_NUMBER),
    _plant(
        "another-s-answer",
        "a question is answered with what another network was answered",
        NetworkParts(resolver=_AnswersAnybody),
        I.NAMED,
    ),
    _plant("sleepers-named", "names lead to machines that are stopped", NetworkParts(told=_NamesSleepers), I.NAMED),
    _plant(
        "views-kept", "names lead where they led when a network asked first", NetworkParts(told=_KeepsViews), I.NAMED
    ),
    _plant(
        "flycast-anywhere",
        "an app's private address is told to other networks",
        NetworkParts(told=_LeadsToAnyFlycast),
        I.NAMED,
    ),
    _plant("lost-named", "names lead to machines of a host that is lost", NetworkParts(names=_NamesTheLost), I.NAMED),
    _plant(
        "way-kept",
        "an address leads to a host that has the machine no more",
        NetworkParts(mesh=_TakesNoWayBack),
        I.WAYS,
    ),
    _plant("removed-shown", "a removed host name's certificate is shown on", NetworkParts(book=_KeepsRemoved), I.SHOWN),
    _plant(
        "expired-shown",
        "a certificate that expired is shown before a good one",
        NetworkParts(book=_ShowsExpired),
        I.SHOWN,
    ),
    _plant(
        "key-told",
        "a certificate's private key is in clear in its row",
        NetworkParts(fleet_certificates=_TellsPairs),
        I.SEALED,
    ),
    _plant("key-logged", "an imported private key is in the log", NetworkParts(certificates=_LogsKeys), I.SEALED),
    _plant(
        "first-shown",
        "a lost home's certificate goes before the next one's",
        NetworkParts(certificates=_ShowsTheFirst),
        I.SHOWN,
    ),
)
