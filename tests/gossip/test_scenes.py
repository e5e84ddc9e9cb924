"""The protocol in virtual time: nothing bad comes of what may happen, and scenes that a planted bug would spoil do."""

from dataclasses import dataclass

import pytest

from hawker.gossip.contract import Fate
from hawker.gossip.failure_detector import Timing
from hawker.gossip.frames import ForgetNode, MemberClaim
from hawker.gossip.membership import Membership
from tests.gossip import scenes
from tests.gossip.scenes import SCENES, Kind, Scene
from tests.gossip.virtual_cluster import VirtualCluster
from tests.short_form import short_form


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_all_is_well_after(scene: Scene, seed: int) -> None:
    assert scene(Kind(), seed) == []


class Meek(Membership):
    """Says nothing against what is said of it."""

    def refute(self, claim: MemberClaim, now: float) -> None:
        pass


class Credulous(Membership):
    """Never asks whether somebody else has its id."""

    def hear(self, claim: MemberClaim, now: float) -> None:
        super().hear(claim, now)
        self.twin_at = None


class Loyal(Membership):
    """Forgets nobody."""

    def forget(self, forget: ForgetNode, now: float) -> bool:
        return False


class Fickle(Membership):
    """Believes what it heard last, however old it is."""

    def hear(self, claim: MemberClaim, now: float) -> None:
        peer = self.members.get(claim.node)
        if peer is not None and peer is not self.me:
            peer.incarnation = -1
        super().hear(claim, now)


@dataclass(frozen=True, slots=True)
class Planted:
    bug: str
    kind: Kind
    found_in: Scene


PLANTED = (
    Planted("no refutation", Kind(membership=Meek), scenes.heavy_loss),
    Planted("no suspicion", Kind(timing=Timing(suspicion_factor=0)), scenes.heavy_loss),
    Planted(
        "no Lifeguard",
        Kind(timing=Timing(health_most=0, confirmations=0, suspicion_stretch=1)),
        scenes.heavy_loss,
    ),
    Planted("others are not asked", Kind(timing=Timing(relays=0)), scenes.one_way),
    Planted("the dead are never tried again", Kind(timing=Timing(reach_s=1e9)), scenes.parted),
    Planted("news is not passed on", Kind(timing=Timing(transmit_factor=0)), scenes.heavy_loss),
    Planted("blind to its own stalls", Kind(timing=Timing(stall_s=1e9)), scenes.frozen),
    Planted("twins go unseen", Kind(membership=Credulous), scenes.twins),
    Planted("nobody is forgotten", Kind(membership=Loyal), scenes.forgotten),
    Planted("the last word counts", Kind(membership=Fickle), scenes.parted),
)


FEW = short_form(PLANTED, lambda planted: planted in PLANTED[:4], "scenes with one more bug; four are the short form")


@pytest.mark.parametrize("planted", FEW, ids=lambda planted: planted.bug)
def test_a_planted_bug_is_found(planted: Planted) -> None:
    assert any(planted.found_in(planted.kind, seed) for seed in (1, 2, 3))


@pytest.mark.parametrize(("count", "known_s"), [(3, 10), (10, 12), (50, 15)])
def test_a_crash_is_known_to_all_in_time(count: int, known_s: float) -> None:
    """PROTOCOL.md asks for 15 s at 100 members; the benchmark measures there."""
    drill = VirtualCluster(seed=count, loss=0.01)
    nodes = drill.settled(count)
    drill.run(2)
    drill.crash(nodes[1])
    drill.until(lambda: drill.everywhere(nodes[1], Fate.SUSPECT) or drill.fates(Fate.SUSPECT), 6)
    assert drill.until(lambda: drill.everywhere(nodes[1], Fate.DOWN), known_s) > 2


def test_a_cluster_of_thirty_finds_itself() -> None:
    drill = VirtualCluster(seed=7, loss=0.05)
    nodes = drill.cluster_of(30)
    drill.until(lambda: all(member.meta for node in nodes for member in node.swim.members()), 30)


def test_a_seed_tells_the_same_story_twice() -> None:
    stories = []
    for _ in range(2):
        drill = VirtualCluster(seed=11, loss=0.2)
        drill.settled(8)
        drill.run(30)
        stories.append((drill.sent, drill.sent_bytes, [(seen.at, seen.by) for seen in drill.seen]))
    assert stories[0] == stories[1]


def test_at_rest_a_member_says_little() -> None:
    """Two datagrams a second: one question, one answer."""
    drill = VirtualCluster(seed=5)
    drill.settled(20)
    drill.run(5)
    before = drill.sent
    drill.run(20)
    assert (drill.sent - before) / (20 * 20) < 2.2
