from pathlib import Path

import pytest

from hawker.ids import AppName, MachineId, NodeId
from hawker.names import (
    FILE,
    KnownNames,
    NamedApp,
    NamedMachine,
    group_of,
    is_outside,
    named_pairs,
    read_names,
    write_names,
)

MACHINE = NamedMachine(
    id=MachineId("00000000000001"),
    app=AppName("shop"),
    ip="fdaa:1:2:0:0:1::2",
    node=NodeId("0000000a"),
    region="ams",
    started=True,
)


def test_names_that_were_written_are_read(tmp_path: Path) -> None:
    app = NamedApp(name=AppName("shop"), network_id=1)
    known = KnownNames(node=MACHINE.node, region="ams", apps=(app,), machines=(MACHINE,))
    write_names(tmp_path, known)
    assert read_names(tmp_path) == known


def test_names_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    assert read_names(tmp_path) is None
    (tmp_path / FILE).write_bytes(b"\xff\x00")
    assert read_names(tmp_path) is None


def test_pairs_that_fit_a_name_and_are_among_the_first_have_names() -> None:
    fit = {"Tier": "gold", "k" * 63: "v" * 63}
    assert named_pairs({**fit, "k" * 64: "v", "long": "é" * 32, "empty": "", "": "v"}) == fit
    assert list(named_pairs({f"k{number}": "v" for number in range(500)})) == [f"k{number}" for number in range(128)]


def test_an_address_says_its_network() -> None:
    assert MACHINE.network_id == 0x0001_0002


@pytest.mark.parametrize(
    ("address", "source", "outside"),
    [
        ("fdaa:0:7::1", "fdaa:0:7:9::2", False),
        ("fdaa:0:7::1", "fdaa:0:8::2", True),
        ("fdaa:0:7::1", "203.0.113.7", True),
        ("fdaa:0:7::1", "fe80::1%br0", True),
        ("fdaa:0:7::1", "", True),
        ("203.0.113.1", "fdaa:0:7::2", False),
    ],
)
def test_addresses_outside_of_a_private_network_are_told_from_those_within(
    address: str, source: str, outside: bool
) -> None:
    assert is_outside(address, source) is outside


def test_the_group_of_fly_goes_first() -> None:
    assert group_of({"fly_process_group": "web", "process_group": "old"}) == "web"
    assert (group_of({"process_group": "old"}), group_of({})) == ("old", "")
