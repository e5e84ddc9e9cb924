"""Which machines a connection to an address and port of the host may reach. Pure: the worker's feed in, targets out.

A machine that is published is found at the ports that its own config names; of the machines of one app each one's own
config counts. An app that publishes nothing and has no address is found nowhere.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from hawker.config import Service
from hawker.config.machine import Port
from hawker.feed import API_APP, ENDS_TLS, EVERYWHERE, POSTGRES, AppAddress, MachineRoute
from hawker.ids import AppName, MachineId
from hawker.machine import GONE
from hawker.names import is_private_address
from hawker.value_object import ValueObject

MAX_PORTS_OF_APP = 128
"""The most doors, an address with a port each, that one app may have on a host."""
MAX_PORTS = 2048
_MOST_ASKED = 4096
_SPOKEN_CHARS = 200
_HTTP = frozenset({"http", "edge_http"})
_HTTPS = 443
_UDP, _TCP = "udp", "tcp"


class Door(ValueObject, frozen=True, order=True):
    """An address and port of the host at which the edge listens: with `udp` for datagrams, else for connections."""

    address: str
    """An IP address of the host, as text."""
    port: int
    """The port, 1 to 65535."""
    udp: bool = False


class ServiceTarget(ValueObject, frozen=True, gc=False):
    """A service of one machine, as one of its ports leads to it."""

    machine: MachineRoute
    number: int  # of the service in the machine's config
    service: Service
    port: Port

    @property
    def is_udp(self) -> bool:
        """Whether datagrams reach the service. The handlers that its ports name are passed over."""
        return self.service.protocol == _UDP

    @property
    def serves_http(self) -> bool:
        return not self.is_udp and not _HTTP.isdisjoint(self.port.handlers or ())

    @property
    def is_near(self) -> bool:
        """Whether the machine is on this host, and its gate in this process."""
        return self.machine.gate is None

    @property
    def is_here(self) -> bool:
        """Whether the machine is on this host, whichever of the edge's processes has its gate."""
        return self.machine.gate is None or self.machine.gate.is_beside

    @property
    def ends_tls(self) -> bool:
        return not self.is_udp and not ENDS_TLS.isdisjoint(self.port.handlers or ())

    @property
    def speaks_postgres(self) -> bool:
        """Whether clients of the port ask for TLS in the words of PostgreSQL."""
        return not self.is_udp and POSTGRES in (self.port.handlers or ())


class DoorRefused(ValueObject, frozen=True):
    """A door that an app asks for and does not get, and why."""

    door: Door
    reason: str
    """The reason, for the app's people."""


class Routes:
    """The machines of the feed. A machine is replaced whole; the later word counts."""

    def __init__(self) -> None:
        self.machines: dict[MachineId, MachineRoute] = {}
        self.region = "local"  # of this host
        self._addresses: tuple[str, ...] = ()
        self._api_hostname = self._domain = ""
        self._owner_of: dict[str, AppName] = {}
        self._owned_by: dict[AppName, list[str]] = {}
        self._named: frozenset[AppName] = frozenset()
        self._targets: dict[Door, dict[AppName, dict[MachineId, ServiceTarget]]] = {}
        self._of_app: dict[AppName, tuple[Door, ...]] = {}
        self._machines_of: dict[AppName, dict[MachineId, MachineRoute]] = {}
        self._newest: dict[tuple[Door, AppName], ServiceTarget] = {}  # as was asked since the last change
        self._meant: dict[tuple[Door, str, AppName | None, bool], AppName | None] = {}  # the same
        self._first: dict[Door, AppName] = {}  # the same
        self.refused: dict[MachineId, DoorRefused] = {}

    def replace(
        self,
        machines: Iterable[MachineRoute],
        addresses: tuple[str, ...],
        app_addresses: Sequence[AppAddress] = (),
        api_hostname: str = "",
        domain: str = "",
    ) -> list[MachineId]:
        """Take these machines as all that there are, with the host's addresses and those of apps. Returns the machines
        that are gone."""
        self.begin(addresses, app_addresses, api_hostname, domain)
        there = {machine.id: machine for machine in machines}
        gone = [machine_id for machine_id in self.machines if machine_id not in there]
        for machine_id in gone:
            self.forget(machine_id)
        for machine in there.values():
            self.put(machine)
        return gone

    def begin(
        self,
        addresses: tuple[str, ...],
        app_addresses: Sequence[AppAddress],
        api_hostname: str = "",
        domain: str = "",
    ) -> None:
        """Take the host's addresses and those of apps, the host name of the node's API and the platform's own domain,
        as they are from now on; each machine is put again after that."""
        self._addresses, self._api_hostname, self._domain = addresses, api_hostname, domain
        self._owner_of = {each.ip: each.app for each in reversed(app_addresses) if not each.shared}
        self._owned_by = {}
        for ip, app in self._owner_of.items():
            self._owned_by.setdefault(app, []).append(ip)
        self._named = frozenset(each.app for each in app_addresses if each.shared)

    def ask_again(self) -> None:
        """Try again for doors that were refused: others may be gone since then."""
        for machine_id in list(self.refused):
            self.put(self.machines[machine_id])

    def put(self, machine: MachineRoute) -> None:
        """Take a machine as it is now. A target that stays as it was keeps its place in every table: a table that is
        emptied and filled again grows."""
        before = self.machines.get(machine.id)
        if machine.state in GONE or (before is not None and before.app != machine.app):
            self.forget(machine.id)
        if machine.state in GONE:
            return
        self._drop_asked()
        self.refused.pop(machine.id, None)
        found = self._found_at(machine)
        self._leave(machine, found)
        self.machines[machine.id] = machine
        self._machines_of.setdefault(machine.app, {})[machine.id] = machine
        for door, target in found.items():
            self._add(door, target)

    def forget(self, machine_id: MachineId) -> None:
        machine = self.machines.pop(machine_id, None)
        self.refused.pop(machine_id, None)
        if machine is None:
            return
        self._drop_asked()
        del self._machines_of[machine.app][machine_id]
        if not self._machines_of[machine.app]:
            del self._machines_of[machine.app]
        self._leave(machine, ())

    def _leave(self, machine: MachineRoute, stays: Container[Door]) -> None:
        for door in self._of_app.get(machine.app, ()):
            apps = self._targets[door]
            if door in stays or apps[machine.app].pop(machine.id, None) is None:
                continue
            if not apps[machine.app]:
                del apps[machine.app]
                self._release(machine.app, door)
            if not apps:
                del self._targets[door]

    @property
    def doors(self) -> frozenset[Door]:
        """The doors at which the edge has to listen."""
        return frozenset(self._targets)

    def apps(self, door: Door) -> Mapping[AppName, Mapping[MachineId, ServiceTarget]]:
        """The targets that may be asked for at this door, by app and machine."""
        return self._targets.get(door, {})

    def owner_of(self, address: str) -> AppName | None:
        """The app that has the address alone; None without one."""
        return self._owner_of.get(address)

    def first_app(self, door: Door) -> AppName | None:
        """The app as which the door is spoken to, and which a connection means that names no app: the one that has been
        there longest, of those with machines on this host, else of all. So a machine elsewhere takes no port that a
        machine here has. The node's API was there before all."""
        first = self._first.get(door)
        if first is None and (apps := self.apps(door)):
            first = _eldest(apps, apps)
            if first is not None:
                self._first[door] = first
        return first

    def service(self, app: AppName, machine_id: MachineId, number: int, *, udp: bool = False) -> ServiceTarget | None:
        """The service `number` of a machine of this host, published or not, that takes connections, or with `udp`
        datagrams; None where there is none."""
        machine = self.machines.get(machine_id)
        if machine is None or machine.app != app or machine.gate is not None or not 0 <= number < len(machine.services):
            return None
        service = machine.services[number]
        target = ServiceTarget(machine, number, service, next(iter(service.ports or ()), Port()))
        return target if target.is_udp is udp else None

    def inside(self, app: AppName, port: int) -> dict[MachineId, ServiceTarget]:
        """The targets, by machine, that a request of the app's own network reaches, published or not: the service that
        has this port and speaks HTTP, else a machine's only one that does."""
        found = {each.id: _inside(each, port) for each in self._machines_of.get(app, {}).values()}
        return {machine_id: target for machine_id, target in found.items() if target is not None}

    def of_region(
        self, app: AppName, port: int, spoken: str, *, inside: bool, udp: bool = False
    ) -> dict[MachineId, ServiceTarget]:
        """The targets of this region for an edge of another one, by machine: those that are reached at this port and
        spoken to in this way, or with `udp` by datagrams. Without `inside` only those that are reached from outside."""
        if inside:
            found = self.inside(app, port)
        else:
            outside = app in self._owned_by or (app in self._named and not udp)
            machines = [
                each for each in self._machines_of.get(app, {}).values() if outside or each.publish == EVERYWHERE
            ]
            served = (each for machine in machines for each in _served(machine))
            found = {target.machine.id: target for target, number in served if number == port and target.is_udp is udp}
        return {
            machine_id: target
            for machine_id, target in found.items()
            if not target.machine.region and (udp or spoken_of(target.port) == spoken)
        }

    def network(self, app: AppName) -> int:
        """The number of the network that the app is on; 0 where that is not known, and 0 is no network's."""
        return next((each.network for each in self._machines_of.get(app, {}).values()), 0)

    def is_on(self, app: AppName, network: int) -> bool:
        """Whether the app is on this network."""
        return network != 0 and self.network(app) == network

    def are_joined(self, app: AppName, other: AppName) -> bool:
        """Whether both apps are on one network, or are one app."""
        return app == other or self.is_on(other, self.network(app))

    def owner(self, app: AppName) -> str:
        """The key in whose share all of the app's use counts: its organization's; its own where that is not known."""
        for machine in self._machines_of.get(app, {}).values():
            return machine.org or app
        return app

    def newest(self, door: Door, app: AppName) -> ServiceTarget | None:
        """The target of the latest version among an app's machines at this door: its handlers decide how the app is
        spoken to."""
        found = self._newest.get((door, app))
        if found is not None:
            return found
        targets = self.apps(door).get(app, {}).values()
        found = max(targets, key=lambda target: (target.machine.version, target.machine.id), default=None)
        if found is not None:  # clients make up as many names as they like
            self._newest[door, app] = found
        return found

    def app_named(self, door: Door, host: str, claimer: AppName | None, *, tls: bool) -> AppName | None:
        """The app that a client means that names this host, of those that are spoken to in this way. A name that an app
        has claimed is its alone, with TLS and without: where that app is not there, nobody is meant. A name that nobody
        has claimed means the app that its first label names, else the one that has been there longest. So nobody takes
        another app's requests by the name that he gives to his app. APP.DOMAIN is that app's, whoever has claimed it.
        At an address that an app has alone a claim counts for TLS only: who leads the name there means that app. The
        host name of the node's API is its own, and its only one."""

        asked = door, host, claimer, tls
        found = self._meant.get(asked)
        if found is not None or asked in self._meant:
            return found
        if len(self._meant) >= _MOST_ASKED:  # clients make up as many names as they like
            self._meant.clear()
        found = self._meant[asked] = self._app_meant(door, host, claimer, tls=tls)
        return found

    def _app_meant(self, door: Door, host: str, claimer: AppName | None, *, tls: bool) -> AppName | None:
        def serves(app: AppName) -> bool:
            target = self.newest(door, app)
            return target is not None and target.ends_tls is tls and (tls or target.serves_http)

        if self._api_hostname and host == self._api_hostname:
            return API_APP if serves(API_APP) else None
        label, _, rest = host.partition(".")
        named = AppName(label)
        owner = named if self._domain and rest == self._domain else claimer
        if owner is not None and (tls or door.address not in self._owner_of):
            return owner if owner != API_APP and serves(owner) else None
        found = named if named != API_APP and serves(named) else self.first_app(door)
        if found != API_APP:
            return found
        there = self.apps(door)
        return _eldest((app for app in there if app != API_APP and serves(app)), there)

    def https_port(self, address: str, app: AppName) -> int:
        """The port at which the app speaks HTTPS at this address: 443 if it is there, or if none is."""
        served = {
            door.port
            for door in self._of_app.get(app, ())
            if door.address == address
            and (target := self.newest(door, app)) is not None
            and target.ends_tls
            and target.serves_http
        }
        return min(served) if served and _HTTPS not in served else _HTTPS

    def _drop_asked(self) -> None:
        self._newest.clear()
        self._meant.clear()
        self._first.clear()

    def _found_at(self, machine: MachineRoute) -> dict[Door, ServiceTarget]:
        """Each door once. An address that an app has alone is no other's, whatever a machine's config asks for."""
        found: dict[Door, ServiceTarget] = {}
        for target, number in _served(machine):
            for address in self._places(target):
                if self._owner_of.get(address, machine.app) == machine.app:
                    found.setdefault(_door(address, number, target.is_udp), target)
        return found

    def _places(self, target: ServiceTarget) -> Iterator[str]:
        """Where the machine is published, where its app has addresses alone, and where a name is enough to find it. TLS
        ends at no address of a private network."""
        machine = target.machine
        if machine.publish == EVERYWHERE or machine.app == API_APP:
            yield from self._addresses
        elif machine.publish:
            yield machine.publish
        for address in self._owned_by.get(machine.app, ()):
            if is_private_address(address):
                if not target.ends_tls:
                    yield address
            elif self._addresses:
                yield address
        if machine.app in self._named and (target.serves_http or target.ends_tls):
            yield from self._addresses

    def _add(self, door: Door, target: ServiceTarget) -> None:
        machine, mine = target.machine, self._of_app.get(target.machine.app, ())
        if door not in mine and len(mine) >= MAX_PORTS_OF_APP:
            self.refused[machine.id] = DoorRefused(door, f"an app has at most {MAX_PORTS_OF_APP} ports on a host")
            return
        if door not in self._targets and len(self._targets) >= MAX_PORTS:
            self.refused[machine.id] = DoorRefused(door, f"a host has at most {MAX_PORTS} ports for all apps")
            return
        if door not in mine:
            self._of_app[machine.app] = (*mine, door)
        self._targets.setdefault(door, {}).setdefault(machine.app, {})[machine.id] = target

    def _release(self, app: AppName, door: Door) -> None:
        left = tuple(each for each in self._of_app[app] if each != door)
        if left:
            self._of_app[app] = left
        else:
            del self._of_app[app]


@lru_cache(MAX_PORTS)
def _door(address: str, port: int, udp: bool) -> Door:
    """One, however many apps are there."""
    return Door(address, port, udp)


def _eldest(apps: Iterable[AppName], there: Mapping[AppName, Mapping[MachineId, ServiceTarget]]) -> AppName | None:
    """Of these, which are `there`, the one that has been there longest; None of none."""
    return min(apps, key=lambda app: min(map(_seniority, there[app].values())), default=None)


def _seniority(target: ServiceTarget) -> tuple[bool, float]:
    return not target.is_here, target.machine.created_at


def _inside(machine: MachineRoute, port: int) -> ServiceTarget | None:
    """Its own way of ending TLS is for those outside."""
    speaking = [
        ServiceTarget(machine, number, service, each)
        for number, service in enumerate(machine.services)
        if (service.protocol or _TCP) == _TCP and service.internal_port
        for each in service.ports or ()
        if not _HTTP.isdisjoint(each.handlers or ())
    ]
    exact = next((target for target in speaking if port in ports_of(target.port)), None)
    if exact is not None or not speaking:
        return exact
    return speaking[0] if len({target.number for target in speaking}) == 1 else None


def _served(machine: MachineRoute) -> Iterator[tuple[ServiceTarget, int]]:
    """Each port."""
    for number, service in enumerate(machine.services):
        if (service.protocol or _TCP) in (_TCP, _UDP) and service.internal_port:
            for port in service.ports or ():
                for each in ports_of(port):
                    yield ServiceTarget(machine, number, service, port), each


def spoken_of(port: Port) -> str:
    """The way in which an edge speaks to clients and machine at this port, as a text: of machines with the same text,
    each may serve a request that came for another."""
    options, proxied = port.http_options, port.proxy_proto_options
    said = [*sorted(port.handlers or ())]
    said += ["h2"] if options is not None and options.h2_backend else []
    said += [f"head {proxied.version}"] if proxied is not None and proxied.version else []
    return " ".join(said)[:_SPOKEN_CHARS]


def ports_of(port: Port) -> range:
    """The one port, or the range of ports, that a `Port` means; never more than one app may have."""
    first = port.port or port.start_port or 0
    last = port.port or port.end_port or first
    return range(first, min(last, first + MAX_PORTS_OF_APP) + 1)
