import pytest

from hawker.auth.caveat import (
    Actions,
    Apps,
    Caveat,
    Expires,
    Holder,
    Machines,
    Orgs,
    Sources,
    decode,
    encode,
    holder_of,
    refusal,
)
from hawker.permission import Action, Attempt

NOW = 1_700_000_000.0
READ = Attempt(Action.READ, org="o", app="a", machine="m", source="10.1.2.3", now=NOW)
ON_THE_NODE = Attempt(Action.READ, source="10.1.2.3", now=NOW)
ALL: tuple[Caveat, ...] = (
    Orgs(("o", "p")),
    Apps(("a",)),
    Machines(("m",)),
    Actions("rw"),
    Expires(int(NOW) + 1),
    Sources(("10.0.0.0/8", "fd00::/8")),
    Holder("ann"),
)


@pytest.mark.parametrize("caveat", ALL, ids=str)
def test_a_resource_that_a_caveat_names_is_allowed(caveat: Caveat) -> None:
    assert caveat.allows(READ)
    assert decode(encode(caveat)) == caveat


@pytest.mark.parametrize(
    "caveat",
    [
        Orgs(("x",)),
        Apps(("A",)),
        Machines(()),
        Actions("wcdC"),
        Actions(""),
        Expires(int(NOW)),
        Sources(("10.2.0.0/16",)),
    ],
    ids=str,
)
def test_anything_else_is_not(caveat: Caveat) -> None:
    assert not caveat.allows(READ)
    assert refusal((*ALL, caveat), READ) is caveat


@pytest.mark.parametrize("caveat", [Orgs(("o",)), Apps(("a",)), Machines(("m",))], ids=str)
def test_a_token_for_some_things_is_not_for_the_node(caveat: Caveat) -> None:
    assert not caveat.allows(ON_THE_NODE)


@pytest.mark.parametrize("source", ["", "unix", "11.0.0.1", "::1"])
def test_a_caller_from_nowhere_known_is_in_no_network(source: str) -> None:
    assert not Sources(("10.0.0.0/8",)).allows(Attempt(Action.READ, source=source))


def test_an_ipv4_caller_of_a_socket_for_both_families_is_one() -> None:
    assert Sources(("10.0.0.0/8",)).allows(Attempt(Action.READ, source="::ffff:10.0.0.1"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc0",
        b"\x92\xa5later\x01",  # a kind of a later version
        b"\x92\xa6action\xa1x",  # an action that there is not
        b"\x92\xa6source\x91\xa3lan",  # no network
        b"\x92\xa7expires\xa4soon",
        encode(Holder("a")) + b"\0",
    ],
)
def test_a_caveat_not_understood_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data)


def test_the_first_holder_counts() -> None:
    assert holder_of((Holder("ann"), Holder("eve"))) == "ann"
    assert holder_of((Apps(("a",)),)) == ""
    assert holder_of((Holder("root"), Holder("eve"))) == "" and holder_of((Holder("root of acme"),)) == "root of acme"
