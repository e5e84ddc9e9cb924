import itertools

import msgspec
import pytest

from hawker.gossip.contract import Fate, Meta
from hawker.gossip.frames import Claim
from hawker.gossip.peer import Peer, content_of, print_of
from tests.gossip.solo import META, claim, says


@pytest.mark.parametrize(
    ("known", "said", "believed"),
    [
        ((Fate.ALIVE, 1), (Fate.ALIVE, 1), False),
        ((Fate.ALIVE, 1), (Fate.ALIVE, 2), True),
        ((Fate.ALIVE, 1), (Fate.SUSPECT, 1), True),
        ((Fate.ALIVE, 2), (Fate.SUSPECT, 1), False),
        ((Fate.SUSPECT, 1), (Fate.ALIVE, 1), False),
        ((Fate.SUSPECT, 1), (Fate.ALIVE, 2), True),
        ((Fate.SUSPECT, 1), (Fate.DOWN, 1), True),
        ((Fate.DOWN, 1), (Fate.ALIVE, 1), False),
        ((Fate.DOWN, 1), (Fate.ALIVE, 2), True),
        ((Fate.DOWN, 1), (Fate.SUSPECT, 1), False),
        ((Fate.DOWN, 1), (Fate.LEFT, 1), True),
        ((Fate.LEFT, 1), (Fate.DOWN, 1), False),
        ((Fate.LEFT, 1), (Fate.ALIVE, 2), True),
    ],
)
def test_which_claim_is_newer(known: tuple[Fate, int], said: tuple[Fate, int], believed: bool) -> None:
    peer = Peer(claim(2, known[0], incarnation=known[1]), 0)
    assert peer.outdone_by(claim(2, said[0], incarnation=said[1])) == believed


def test_whatever_is_heard_first_all_believe_the_same() -> None:
    claims = [claim(2, fate, incarnation=incarnation) for fate in Fate for incarnation in (1, 2)]
    for order in itertools.islice(itertools.permutations(claims), 0, 40320, 37):
        assert _after(list(order)) == (Fate.LEFT, 2)


def _after(claims: list[Claim]) -> tuple[Fate, int]:
    peer = Peer(claims[0], 0)
    for each in claims[1:]:
        if peer.outdone_by(each):
            peer.take(each, 0)
    return peer.fate, peer.incarnation


def test_since_is_when_its_fate_changed() -> None:
    peer = Peer(says(2), 10)
    peer.take(says(2, incarnation=2), 20)
    assert peer.member().since == 10
    peer.take(claim(2, Fate.DOWN, incarnation=2), 30)
    assert peer.member().since == 30
    assert peer.claim(75).age_s == 45


def test_one_that_is_down_keeps_its_age_from_node_to_node() -> None:
    told = msgspec.structs.replace(claim(2, Fate.DOWN), age_s=100)
    assert Peer(told, 1000).changed_at == 900


def test_meta_is_believed_by_its_fingerprint() -> None:
    peer = Peer(says(2), 0)
    assert peer.lacks_meta and peer.member().meta is None
    assert not peer.learn(content_of(Meta(region="par", api="http://forged")))
    assert peer.learn(content_of(META)) and not peer.learn(content_of(META))
    assert peer.member().meta == META and not peer.lacks_meta


def test_meta_of_a_newer_program_is_read() -> None:
    content = msgspec.msgpack.encode({"region": "mad", "api": "x", "of_the_future": 1})
    peer = Peer(msgspec.structs.replace(says(2), meta=print_of(content)), 0)
    assert peer.learn(content) and peer.meta == Meta(region="mad", api="x")


def test_meta_that_is_none_is_refused() -> None:
    peer = Peer(msgspec.structs.replace(says(2), meta=print_of(b"\xc1")), 0)
    assert not peer.learn(b"\xc1") and peer.meta is None


def test_the_digest_is_of_what_all_agree_on() -> None:
    assert Peer(says(2), 0).digest() == Peer(says(2), 99).digest() != 0
    assert Peer(claim(2, Fate.SUSPECT), 0).digest() == Peer(says(2), 0).digest()
    assert Peer(claim(2, Fate.DOWN), 0).digest() == 0
    for other in (says(2, incarnation=2), says(2, epoch=2), says(2, boot=9), says(2, address="x:1"), says(3)):
        assert Peer(other, 0).digest() != Peer(says(2), 0).digest()
