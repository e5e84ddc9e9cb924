"""The names of one private network: what each leads to. Pure. A view has machines of its network only, so no answer can
be about another's. Names are as superfly/docs has them (networking/private-networking),
and machines are found by their names too: NAME.vm.APP.internal.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from ipaddress import IPv6Address
from typing import TypeVar

import msgspec

from hawker.host.address import network_resolver
from hawker.ids import NodeId
from hawker.names import (
    RESOLVER,
    KnownNames,
    NamedMachine,
    NamedPeer,
    is_private_address,
    named_pairs,
    network_of_address,
)
from hawker.value_object import ValueObject

MOST_ADDRESSES = 500
_K = TypeVar("_K", str, tuple[str, str])
_TOP = re.compile(r"top([1-9]\d{0,2})")
_BETWEEN = frozenset({("vm",), ("process",), ("_metadata",), ("kv", "_metadata"), ("of",), ("nearest", "of")})
"""Names that have other names below them, and no records of their own."""


class Leads(ValueObject, frozen=True):
    """The content of a name that is there: addresses, or texts, or neither."""

    addresses: tuple[IPv6Address, ...] = ()
    texts: tuple[str, ...] = ()
    """Answers to a question for TXT; a text longer than 255 bytes is sent in pieces."""


class AppMachines:
    """The machines of one app, by what names say of them: each is looked at once, not for each question."""

    def __init__(self, machines: Sequence[NamedMachine]) -> None:
        self.listed = [each for each in machines if each.listed]
        self.by_id = _by(machines, lambda each: (each.id,))
        self.by_name = _by(machines, lambda each: (each.name.casefold(),))
        self.by_group = _by(self.listed, lambda each: (each.group.casefold(),))
        self.by_region = _by(self.listed, lambda each: (each.region.casefold(),))

    @cached_property
    def by_pair(self) -> dict[tuple[str, str], list[NamedMachine]]:
        """By key and value of their metadata, both as names are compared."""
        return _by(self.listed, _pairs)


def _by(machines: Iterable[NamedMachine], keys: Callable[[NamedMachine], Iterable[_K]]) -> dict[_K, list[NamedMachine]]:
    found: dict[_K, list[NamedMachine]] = {}
    for machine in machines:
        for key in keys(machine):
            found.setdefault(key, []).append(machine)
    return found


def _pairs(machine: NamedMachine) -> set[tuple[str, str]]:
    return {(key.casefold(), value.casefold()) for key, value in named_pairs(machine.metadata).items()}


class View(ValueObject, frozen=True):
    """The names of one network. `shuffle` gives a random order; `api` is the address where the asker reaches the node's
    API."""

    node: NodeId
    region: str
    """The region of this node: machines of it come second in `nearest`, behind those of the node itself."""
    apps: dict[str, list[NamedMachine]] = msgspec.field(default_factory=dict)
    known: dict[str, AppMachines] = msgspec.field(default_factory=dict)
    """The machines of the apps that were asked for."""
    texts: dict[tuple[str, ...], Leads] = msgspec.field(default_factory=dict)
    """The lists that were asked for, by their labels."""
    addresses: dict[str, list[IPv6Address]] = msgspec.field(default_factory=dict)
    by_address: dict[IPv6Address, NamedMachine] = msgspec.field(default_factory=dict)
    address_of: dict[str, IPv6Address] = msgspec.field(default_factory=dict)
    """The address that the `ip` of each machine says: to read it again takes longer than all else in an answer."""
    peers: dict[str, NamedPeer] = msgspec.field(default_factory=dict)
    api: IPv6Address | None = None
    shuffle: Callable[[list[NamedMachine]], None] = list.sort  # type: ignore[assignment]

    def find(self, labels: Sequence[str]) -> Leads | None:
        """The content of the name with these `labels` below `.internal`, in lower case, `internal` left out. None:
        there is no such name."""
        found = self.texts.get(tuple(labels))
        if found is None:
            found = self._find(labels)
            if found is not None and found.texts:
                self.texts[tuple(labels)] = found
        return found

    def _find(self, labels: Sequence[str]) -> Leads | None:
        match labels:
            case []:
                return Leads()
            case ["_apps"]:
                return Leads(texts=_text(",".join(sorted(self.apps))))
            case ["_instances"]:
                return Leads(texts=_text(";".join(map(_instance, self._listed(everything=False)))))
            case ["all", "_instances"]:
                return Leads(texts=_text(";".join(map(_instance, self._listed(everything=True)))))
            case ["_peer"]:
                return Leads(texts=_text(",".join(sorted(each.name for each in self.peers.values() if each.listed))))
            case [name, "_peer"] if name in self.peers:
                return Leads(addresses=(IPv6Address(self.peers[name].ip),))
            case ["_api"]:
                return Leads(addresses=(self.api,) if self.api else ())
            case [*below, app] if app in self.apps:
                if app not in self.known:
                    self.known[app] = AppMachines(self.apps[app])
                return self._of_app(tuple(below), self.known[app])
            case _:
                return None

    def flycast(self, labels: Sequence[str]) -> Leads | None:
        """The content of the name with these `labels` below `.flycast`: an app that the edge serves in this network.
        None: there is no such name."""
        match labels:
            case []:
                return Leads()
            case [app] if app in self.addresses:
                return Leads(addresses=tuple(self.addresses[app]))
            case [app] if app in self.apps:
                return Leads()
        return None

    def name_of(self, address: IPv6Address) -> str | None:
        """The name of the machine that has this address, without the last dot; None when no machine has it."""
        found = self.by_address.get(address)
        return None if found is None else f"{found.id}.vm.{found.app}.internal"

    def _of_app(self, below: tuple[str, ...], machines: AppMachines) -> Leads | None:
        listed = machines.listed
        match below:
            case () | ("global",):
                return self._addresses(listed)
            case ("vms",):
                return Leads(texts=_text(",".join(f"{each.id} {each.region}" for each in _started(listed))))
            case ("all", "vms"):
                return Leads(texts=_text(",".join(f"{each.id} {each.region}" for each in listed)))
            case ("regions",):
                return Leads(texts=_text(",".join(sorted({each.region for each in _started(listed)}))))
            case ("all", "regions"):
                return Leads(texts=_text(",".join(sorted({each.region for each in listed}))))
            case (*own, "vm") if own:  # an id is never taken by another machine's name
                return self._some(machines.by_id.get(".".join(own)) or machines.by_name.get(".".join(own)))
            case (group, "process"):
                return self._some(machines.by_group.get(group))
            case (value, key, "kv", "_metadata"):
                return self._some(machines.by_pair.get((key, value)))
            case (top, "nearest", "of") if number := _TOP.fullmatch(top):
                nearest = sorted(_started(listed), key=self._distance)[: int(number[1])]
                return Leads(addresses=tuple(self.address_of[each.ip] for each in nearest))
            case (region,) if region not in ("vm", "process", "_metadata", "of"):
                return self._some(machines.by_region.get(region))
        return Leads() if below in _BETWEEN else None

    def _some(self, machines: list[NamedMachine] | None) -> Leads | None:
        """A name that is there because machines are."""
        return self._addresses(machines) if machines else None

    def _addresses(self, machines: Iterable[NamedMachine]) -> Leads:
        found = list(_started(machines))
        self.shuffle(found)
        return Leads(addresses=tuple(self.address_of[each.ip] for each in found[:MOST_ADDRESSES]))

    def _listed(self, *, everything: bool) -> list[NamedMachine]:
        machines = (each for name in sorted(self.apps) for each in self.apps[name] if each.listed)
        return [each for each in machines if everything or each.started]

    def _distance(self, machine: NamedMachine) -> int:
        return 0 if machine.node == self.node else 1 if machine.region == self.region else 2


def view_of(
    names: KnownNames, network_id: int, shuffle: Callable[[list[NamedMachine]], None], *, entered: bool = False
) -> View:
    """The names in this network, and no others; with `entered` as people's computers see the network."""
    api = (network_resolver(network_id) if entered else RESOLVER) if names.api else None
    view = View(names.node, names.region, api=api, shuffle=shuffle)
    for app in names.apps:
        if app.network_id == network_id:
            view.apps.setdefault(app.name, [])
    for machine in names.machines:
        if machine.network_id == network_id:
            view.apps.setdefault(machine.app, []).append(machine)
            view.address_of[machine.ip] = ip = IPv6Address(machine.ip)
            view.by_address[ip] = machine
    for peer in names.peers:
        if peer.network_id == network_id:
            view.peers.setdefault(peer.name, peer)
    for address in names.addresses:
        if is_private_address(address.ip) and network_of_address(address.ip) == network_id:
            view.addresses.setdefault(address.app, []).append(IPv6Address(address.ip))
    return view


def _started(machines: Iterable[NamedMachine]) -> list[NamedMachine]:
    return [each for each in machines if each.started]


def _instance(machine: NamedMachine) -> str:
    return f"instance={machine.id},app={machine.app},ip={machine.ip},region={machine.region}"


def _text(text: str) -> tuple[str, ...]:
    return (text,) if text else ()
