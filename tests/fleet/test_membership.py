import base64

import pytest

from hawker.clock import ManualClock
from hawker.cluster import MAX_PEERS, Cluster, Peer, found_cluster
from hawker.fleet.membership import Fleet, keyring_of, ring_of
from hawker.gossip.contract import Fate, Member
from hawker.gossip.keyring import GossipKeyring as Ring
from hawker.ids import NodeId
from tests.fleet.desk import ME, OTHER, Crowd, Desk, Forgetful

pytestmark = pytest.mark.anyio


class Book:
    """A fleet of two, and what it wrote down."""

    def __init__(self) -> None:
        self.written: list[Cluster] = []
        self.crowd = Crowd(ME)
        self.fleet = Fleet(
            cluster=found_cluster(ManualClock(), advertise="h", peer_port=1),
            gossip=self.crowd,
            catalog=Desk(),
            forgets=Forgetful(),
            caller=lambda node, behalf: pytest.fail("nobody is called"),
            clock=ManualClock(),
            save=self.written.append,
        )

    @property
    def peers(self) -> list[str]:
        return [peer.node for peer in self.written[-1].peers]


def test_a_keyring_is_the_same_in_the_file_and_in_use() -> None:
    ring = Ring(keys={1: bytes(32), 7: b"7" * 32}, primary=7, version=5)
    assert ring_of(keyring_of(ring)) == ring
    assert keyring_of(ring).keys["7"] == base64.b64encode(b"7" * 32).decode()


def member(node: str, address: str = "h:1") -> Member:
    return Member(node=NodeId(node), address=address, incarnation=1, fate=Fate.ALIVE)


def test_a_member_is_written_down_once() -> None:
    book = Book()
    book.fleet.remember(members=[member(ME)])
    assert not book.written
    book.fleet.remember(members=[member(ME), member("0000000b")])
    book.fleet.remember(members=[member(ME), member("0000000b")])
    assert len(book.written) == 1 and book.peers == ["0000000b"]
    book.fleet.remember(members=[member(ME), member("0000000c")])
    assert book.peers == ["0000000b", "0000000c"]
    book.fleet.remember(members=[member("0000000b", "elsewhere:2")])
    assert book.written[-1].peers[0] == Peer(node=NodeId("0000000b"), address="elsewhere:2")


def test_not_more_peers_are_written_down_than_a_node_needs() -> None:
    book = Book()
    book.fleet.remember(members=[member(f"{number:08x}") for number in range(MAX_PEERS + 50)])
    assert len(book.peers) == MAX_PEERS


async def test_a_forgotten_node_is_not_looked_for_again() -> None:
    book = Book()
    book.fleet.remember(members=[member(OTHER), member("0000000c")])
    book.crowd.set(OTHER, Fate.DOWN)
    await book.fleet.forget(OTHER, force=False)
    assert book.peers == ["0000000c"]


def test_a_changed_key_is_on_disk_before_it_is_told() -> None:
    book = Book()
    told = []
    book.crowd.rekey = lambda keyring: told.append((keyring.version, len(book.written)))  # type: ignore[method-assign]
    book.fleet.add_key(None)
    assert told == [(2, 1)] and book.written[0].keyring.version == 2
