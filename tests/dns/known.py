"""A few machines in two networks, as the worker writes them down."""

import random
from ipaddress import IPv6Address

from dns import message, rdatatype

from hawker.dns.answer import Question, answer, read_question, wire_of
from hawker.dns.view import View, view_of
from hawker.host.address import private_ip
from hawker.ids import AppName, MachineId, NodeId
from hawker.names import KnownNames, NamedAddress, NamedApp, NamedMachine

HERE, THERE, FAR = NodeId("0000000a"), NodeId("0000000b"), NodeId("0000000c")
MINE, THEIRS = 7, 8


def named(number: int, app: str = "shop", network_id: int = MINE, **fields: object) -> NamedMachine:
    machine_id = MachineId(f"{number:014x}")
    values: dict[str, object] = {
        "id": machine_id,
        "app": AppName(app),
        "ip": str(private_ip(network_id, machine_id)),
        "node": HERE,
        "region": "ams",
        "started": True,
    }
    return NamedMachine(**{**values, **fields})  # type: ignore[arg-type]


FLYCAST = "fdaa:0:7::5:1:2"
ONE = named(1, group="web", metadata={"Tier": "gold"}, name="Db.One")
TWO = named(2, node=THERE, name=f"{MachineId('00000000000001')}")
THREE = named(3, node=FAR, region="iad", group="worker")
ASLEEP = named(4, started=False)
HIDDEN = named(5, listed=False)
OTHER = named(6, app="bank", network_id=THEIRS)
KNOWN = KnownNames(
    node=HERE,
    region="ams",
    apps=(
        NamedApp(name=AppName("shop"), network_id=MINE),
        NamedApp(name=AppName("empty"), network_id=MINE),
        NamedApp(name=AppName("bank"), network_id=THEIRS),
    ),
    addresses=(
        NamedAddress(app=AppName("shop"), ip=FLYCAST),
        NamedAddress(app=AppName("bank"), ip="fdaa:0:8::1:2"),
        NamedAddress(app=AppName("guest"), ip="fdaa:0:7::9:1:2"),
    ),
    machines=(ONE, TWO, THREE, ASLEEP, HIDDEN, OTHER),
)


def view(network_id: int = MINE, known: KnownNames = KNOWN, seed: int = 1) -> View:
    return view_of(known, network_id, random.Random(seed).shuffle)


def asked(name: str, kind: str = "AAAA", **options: object) -> Question:
    found = read_question(message.make_query(name, kind, **options).to_wire())  # type: ignore[arg-type]
    assert isinstance(found, Question)
    return found


def answered(name: str, kind: str = "AAAA", network_id: int = MINE) -> message.Message:
    """As whoever asked reads it."""
    return message.from_wire(wire_of(answer(asked(name, kind), view(network_id)), 65_535))


def texts(reply: message.Message) -> list[str]:
    return [b"".join(each.strings).decode() for rrset in reply.answer for each in rrset]


def addresses(reply: message.Message) -> list[str]:
    return [each.address for rrset in reply.answer if rrset.rdtype == rdatatype.AAAA for each in rrset]


def plain(ip: str) -> str:
    return str(IPv6Address(ip))
