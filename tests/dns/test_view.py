"""What a name of a private network leads to."""

from unittest.mock import Mock

import msgspec
import pytest

from hawker.dns import view as view_module
from hawker.dns.view import MOST_ADDRESSES, Leads, view_of
from hawker.host.address import network_resolver
from hawker.names import MOST_PAIRS, RESOLVER, KnownNames, NamedMachine, named_pairs
from tests.dns.known import ASLEEP, HERE, HIDDEN, KNOWN, MINE, ONE, OTHER, THEIRS, THREE, TWO, named, view

ALL = {ONE.ip, TWO.ip, THREE.ip}


def found(name: str) -> Leads | None:
    return view().find(name.split(".") if name else [])


def ips(name: str) -> list[str]:
    leads = found(name)
    assert leads is not None and not leads.texts
    return list(map(str, leads.addresses))


def text(name: str) -> str:
    leads = found(name)
    assert leads is not None and not leads.addresses
    return "".join(leads.texts)


def of(*machines: NamedMachine) -> set[str]:
    return {each.ip for each in machines}


@pytest.mark.parametrize(
    ("name", "machines"),
    [
        ("shop", (ONE, TWO, THREE)),
        ("global.shop", (ONE, TWO, THREE)),
        ("ams.shop", (ONE, TWO)),
        ("iad.shop", (THREE,)),
        (f"{ONE.id}.vm.shop", (ONE,)),
        ("db.one.vm.shop", (ONE,)),
        (f"{HIDDEN.id}.vm.shop", (HIDDEN,)),
        (f"{ASLEEP.id}.vm.shop", ()),
        ("web.process.shop", (ONE,)),
        ("gold.tier.kv._metadata.shop", (ONE,)),
        ("empty", ()),
        ("_peer", ()),
        ("_api", ()),
        ("vm.shop", ()),
        ("kv._metadata.shop", ()),
    ],
)
def test_names_lead_to_started_machines_of_the_network(name: str, machines: tuple[NamedMachine, ...]) -> None:
    assert set(ips(name)) == of(*machines)


def test_nearest_machines_come_first_and_as_many_as_are_asked_for() -> None:
    assert ips("top1.nearest.of.shop") == [ONE.ip]
    assert ips("top2.nearest.of.shop") == [ONE.ip, TWO.ip]
    assert ips("top9.nearest.of.shop") == [ONE.ip, TWO.ip, THREE.ip]


def test_machines_are_looked_at_once_for_all_questions_about_their_app(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, looked = view(), Mock(side_effect=named_pairs)
    monkeypatch.setattr(view_module, "named_pairs", looked)
    for number in range(50):
        assert seen.find([f"v{number}", "tier", "kv", "_metadata", "shop"]) is None
    assert looked.call_count == sum(each.listed for each in seen.apps["shop"])
    for name in (["_instances"], ["all", "vms", "shop"], ["regions", "shop"]):
        assert seen.find(name) is seen.find(name), "a list is made once"


def test_the_first_pairs_of_metadata_have_names() -> None:
    metadata = {f"k{number}": "v" for number in range(MOST_PAIRS + 1)}
    seen = view(MINE, msgspec.structs.replace(KNOWN, machines=(named(1, metadata=metadata),)))
    assert seen.find(["v", f"k{MOST_PAIRS - 1}", "kv", "_metadata", "shop"]) is not None
    assert seen.find(["v", f"k{MOST_PAIRS}", "kv", "_metadata", "shop"]) is None


def test_lists_are_texts() -> None:
    assert text("_apps") == "empty,shop"
    assert text("vms.shop") == f"{ONE.id} ams,{TWO.id} ams,{THREE.id} iad"
    assert text("all.vms.shop") == f"{ONE.id} ams,{TWO.id} ams,{THREE.id} iad,{ASLEEP.id} ams"
    assert text("regions.shop") == "ams,iad" and text("all.regions.shop") == "ams,iad"
    assert text("_instances").split(";")[0] == f"instance={ONE.id},app=shop,ip={ONE.ip},region=ams"
    assert ASLEEP.id in text("all._instances") and ASLEEP.id not in text("_instances")
    assert HIDDEN.id not in text("all._instances")


@pytest.mark.parametrize(
    "name",
    ["bank", f"{OTHER.id}.vm.bank", f"{OTHER.id}.vm.shop", "nobody", "lhr.shop", "top0.nearest.of.shop", "x.y.shop",
     "none.process.shop", "silver.tier.kv._metadata.shop", "topx.nearest.of.shop", "shop.shop", "_nothing",
     "nothing.vm.shop", "one.vm.shop"],
)  # fmt: skip
def test_a_machine_of_another_network_is_no_name(name: str) -> None:
    assert found(name) is None


def test_each_network_sees_its_own() -> None:
    theirs = view(THEIRS)
    assert theirs.find(["bank"]) == Leads(addresses=view(THEIRS).find(["bank"]).addresses)  # type: ignore[union-attr]
    assert theirs.find(["shop"]) is None and theirs.find(["_apps"]) == Leads(texts=("bank",))
    assert view(9).find(["_instances"]) == Leads()


def test_an_address_has_the_name_of_its_machine_in_its_own_network_only() -> None:
    (address,) = (each for each in view().by_address if str(each) == ONE.ip)
    assert view().name_of(address) == f"{ONE.id}.vm.shop.internal"
    assert view(THEIRS).name_of(address) is None


def test_addresses_have_a_random_order_and_a_bound() -> None:
    many = KnownNames(node=HERE, region="ams", machines=tuple(named(number) for number in range(1, 700)))
    first, again = view(MINE, many, 1).find(["shop"]), view(MINE, many, 2).find(["shop"])
    assert first is not None and again is not None
    assert len(first.addresses) == MOST_ADDRESSES == len(set(first.addresses))
    assert first.addresses != again.addresses


def test_the_api_has_an_address_where_machines_reach_it() -> None:
    known = msgspec.structs.replace(KNOWN, api=True)
    for network_id in (MINE, THEIRS):
        found = view(network_id, known).find(["_api"])
        assert found is not None and found.addresses == (RESOLVER,)
        entered = view_of(known, network_id, lambda machines: None, entered=True).find(["_api"])
        assert entered is not None and entered.addresses == (network_resolver(network_id),), "in their own network"
