"""`GossipNode` over a network in memory and in virtual time."""

import pytest

from hawker.clock import ManualClock
from hawker.errors import BadRequest, CannotStart, Conflict, DeadlineExceeded, TooLarge, Unavailable
from hawker.gossip.contract import DATAGRAM_BYTES, Fate, Mesh, NodeMeta
from hawker.gossip.keyring import GossipKeyring, new_keyring
from hawker.sim.harness.loop import LoopClock
from tests.gossip.memory_cluster import at, complete, fate, memory_cluster
from tests.gossip.single_core import KEYRING, node
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


async def test_nodes_find_each_other_through_one() -> None:
    async with memory_cluster() as there:
        nodes = await there.of(5)
        mesh: Mesh = nodes[2]
        assert mesh.me.node == node(3) and mesh.me.fate is Fate.ALIVE
        assert {member.node for member in mesh.members()} == {node(number) for number in range(1, 6)}
        assert {member.node for member in there.ears[1].members} == {node(number) for number in range(2, 6)}
        await there.until(lambda: nodes[0].members()[1].rtt_s > 0)


async def test_since_is_told_in_unix_seconds() -> None:
    async with memory_cluster() as there:
        nodes = await there.of(2)
        await there.clock.sleep(100)
        member = nodes[0].member(node(2))
        assert member is not None and 100 <= there.clock.now() - member.since < 110


async def test_messages_short_and_long_arrive() -> None:
    async with memory_cluster() as there:
        nodes = await there.of(3)
        for message in (b"short", bytes(DATAGRAM_BYTES), bytes(DATAGRAM_BYTES + 1), bytes(1 << 20)):
            nodes[0].send(node(2), message)
        await there.until(lambda: len(there.ears[2].messages) == 4)
        assert sorted(len(message) for _, message in there.ears[2].messages) == [5, 1100, 1101, 1 << 20]
        assert {sender for sender, _ in there.ears[2].messages} == {node(1)}
        with pytest.raises(TooLarge):
            nodes[0].send(node(2), bytes((1 << 20) + 1))
        nodes[0].send(node(9), b"to nobody")
        nodes[0].send(node(1), b"to itself")


async def test_long_messages_wait_in_a_queue_with_an_end() -> None:
    async with memory_cluster() as there:
        nodes = await there.of(2)
        there.network.cut(at(1), at(2))
        for number in range(1000):
            nodes[0].send(node(2), number.to_bytes(4, "big") + bytes(DATAGRAM_BYTES))
        assert len(nodes[0]._notes) == 256
        there.network.heal()
        await there.until(lambda: len(there.ears[2].messages) >= 256)
        assert int.from_bytes(there.ears[2].messages[-1][1][:4], "big") > 900


async def test_a_request_is_answered() -> None:
    async with memory_cluster() as there:
        nodes = await there.of(2)
        assert await nodes[0].ask(node(2), b"hello", timeout_s=5) == b"00000001 said hello"
        long = bytes(3 << 20)
        assert await nodes[1].ask(node(1), long, timeout_s=60) == b"00000002 said " + long


async def test_a_request_has_a_deadline_and_needs_somebody() -> None:
    async with memory_cluster() as there:
        nodes = await there.of(2)
        with pytest.raises(DeadlineExceeded):
            await nodes[0].ask(node(2), b"never", timeout_s=2)
        with pytest.raises(Unavailable, match="not known"):
            await nodes[0].ask(node(9), b"hello", timeout_s=2)
        there.kill(2)
        with pytest.raises(Unavailable, match="cannot connect"):
            await nodes[0].ask(node(2), b"hello", timeout_s=2)


async def test_a_host_that_dies_is_suspected_then_down_and_one_that_leaves_has_left() -> None:
    async with memory_cluster() as there:
        nodes = await there.of(5)
        there.kill(5)
        await there.until(lambda: all(fate(each, 5) is Fate.DOWN for each in nodes[:4]))
        told = [member.fate for member in there.ears[1].members if member.node == node(5)]
        assert told[-2:] == [Fate.SUSPECT, Fate.DOWN]
        began = there.clock.monotonic()
        await nodes[3].leave()
        assert there.clock.monotonic() - began <= 1.1
        there.kill(4)
        await there.until(lambda: all(fate(each, 4) is Fate.LEFT for each in nodes[:3]), 5)
        await there.clock.sleep(30)
        assert {fate(each, 4) for each in nodes[:3]} == {Fate.LEFT}


async def test_one_that_comes_back_is_told_what_it_was() -> None:
    async with memory_cluster() as there:
        nodes = await there.of(3)
        nodes[2].declare(epoch=9)
        await there.until(lambda: (nodes[0].member(node(3)) or nodes[0].me).epoch == 9)
        there.kill(3)
        await there.until(lambda: fate(nodes[0], 3) is Fate.DOWN)
        again = await there.start(3)
        known = await again.join([at(1)])
        assert known is not None and (known.epoch, known.fate) == (9, Fate.DOWN)
        await there.until(lambda: fate(nodes[1], 3) is Fate.ALIVE)


async def test_a_declaration_reaches_all() -> None:
    async with memory_cluster(loss=0.1) as there:
        nodes = await there.of(4)
        meta = NodeMeta(region="mad", api="http://new", catalog="fp2")
        nodes[1].declare(meta=meta, epoch=3)

        def told(number: int) -> bool:
            member = nodes[number].member(node(2))
            return member is not None and member.meta == meta and member.epoch == 3

        await there.until(lambda: all(told(number) for number in range(4)))
        assert there.ears[4].members[-1].meta == meta


async def test_forgetting_reaches_all_and_the_forgotten() -> None:
    async with memory_cluster() as there:
        nodes = await there.of(4)
        nodes[0].forget(node(4), 1)
        await there.until(lambda: all((node(4), 1) in there.ears[number].forgotten for number in range(1, 5)))
        assert all(each.member(node(4)) is None for each in nodes[:3])
        assert nodes[1].fences() == {node(4): 1}
        nodes[3].declare(epoch=2)
        await there.until(lambda: all(complete(each, 4) for each in nodes))


async def test_fences_that_were_kept_count_from_the_beginning() -> None:
    async with memory_cluster() as there:
        first = await there.start(1, fences={node(2): 5})
        second = await there.start(2, epoch=5)
        with pytest.raises(Unavailable):
            await second.join([at(1)], timeout_s=3)
        assert there.ears[2].forgotten == [(node(2), 5)] and first.member(node(2)) is None
        second.declare(epoch=6)
        await there.until(lambda: complete(first, 2))


async def test_keys_are_replaced_while_all_talk() -> None:
    async with memory_cluster(loss=0.05) as there:
        nodes = await there.of(4)
        added = KEYRING.added(b"n" * 32)
        for step in (added, added.using(2), added.using(2).removed(1)):
            nodes[0].rekey(step)
            await there.until(lambda: not nodes[0].behind())
            assert all(each.keyring == step for each in nodes)
        assert [ring.version for ring in there.ears[3].keyrings] == [2, 3, 4]
        nodes[1].send(node(4), b"sealed with the new key")
        assert await nodes[2].ask(node(1), b"hello", timeout_s=20)
        with pytest.raises(Conflict):
            nodes[0].rekey(added)
        with pytest.raises(BadRequest):
            nodes[0].rekey(GossipKeyring(keys={}, primary=1, version=9))


async def test_one_that_slept_through_a_step_catches_up() -> None:
    async with memory_cluster() as there:
        nodes = await there.of(3)
        there.network.part([at(3)], [at(1), at(2)])
        nodes[0].rekey(KEYRING.added(b"n" * 32))
        await there.clock.sleep(5)
        assert nodes[0].behind() == [node(3)]
        there.network.heal()
        await there.until(lambda: nodes[2].keyring.version == 2 and not nodes[0].behind())


async def test_another_key_and_another_cluster_stay_outside() -> None:
    async with memory_cluster() as there:
        first = await there.start(1)
        stranger = await there.start(2, keyring=new_keyring(ManualClock(seed=9)))
        with pytest.raises(Unavailable, match="nobody"):
            await stranger.join([at(1)], timeout_s=3)
        foreign = await there.start(3, cluster="other")
        with pytest.raises(Conflict, match="cluster c"):
            await foreign.join([at(1)], timeout_s=3)
        assert len(first.members()) == 1
        assert (
            [trouble.code for trouble in first.troubles]
            == ["cluster"]
            == [trouble.code for trouble in there.ears[1].troubles]
        )


async def test_a_second_node_with_one_id_is_refused() -> None:
    async with memory_cluster() as there:
        nodes = await there.of(3)
        twin = await there.start(2, address="10.9.9.9:1")
        with pytest.raises(Conflict, match="in use at"):
            await twin.join([at(1)], timeout_s=3)
        member = nodes[0].member(node(2))
        assert member is not None and member.address == at(2)


async def test_a_twin_from_another_part_ends_when_the_parts_meet() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with memory_cluster() as there:
            nodes = await there.of(4)
            there.network.part([at(1), at(2)], [at(3), at(4), "10.9.9.9:1"])
            await there.until(lambda: fate(nodes[3], 1) is Fate.DOWN)
            await there.start(1, seeds=[4], address="10.9.9.9:1")
            await there.clock.sleep(5)
            there.network.heal()
            await there.clock.sleep(60)
    assert caught.group_contains(Conflict, match="began earlier")


async def test_clocks_that_differ_are_told() -> None:
    async with memory_cluster() as there:
        await there.start(1)
        ahead = LoopClock(7)
        ahead.ahead_s = 3600
        await there.start(2, seeds=[1], clock=ahead)
        await there.until(lambda: there.ears[1].troubles and there.ears[2].troubles)
        assert {trouble.code for trouble in there.ears[1].troubles} == {"skew"}
        assert "3600 s ahead" in there.ears[1].troubles[0].text


async def test_a_loop_that_stalls_lowers_this_nodes_own_health() -> None:
    class Stalling(LoopClock):
        stalled_s = 0.0

        def monotonic(self) -> float:
            return super().monotonic() + self.stalled_s

    async with memory_cluster() as there:
        clock = Stalling(1)
        await there.start(1)
        stalling = await there.start(2, seeds=[1], clock=clock)
        await there.clock.sleep(5)
        assert stalling.local_health == 0
        clock.stalled_s = 3.0
        await there.until(lambda: stalling.local_health >= 2, 3)
        await there.until(lambda: stalling.local_health == 0)


async def test_unreadable_and_unauthentic_datagrams_end_nobody() -> None:
    async with memory_cluster() as there:
        nodes = await there.of(2)
        stranger = there.network.transport("10.6.6.6:6")
        for datagram in (b"", b"\xc1" * 100, bytes(1200), bytes(5000), nodes[1]._sealer.seal(b"\x05\xff")):
            stranger.send(at(1), datagram)
        await there.clock.sleep(5)
        assert complete(nodes[0], 2)


async def test_an_address_that_is_taken_is_told() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with memory_cluster() as there:
            await there.start(1)
            await there.start(2, address=at(1))
    assert caught.group_contains(CannotStart)


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_lossy_network_with_a_part_cut_off_becomes_one_again(seed: int) -> None:
    async with memory_cluster(loss=0.2, seed=seed) as there:
        nodes = await there.of(6)
        there.network.part([at(1), at(2)], [at(number) for number in range(3, 7)])
        await there.until(lambda: fate(nodes[0], 6) is Fate.DOWN and fate(nodes[5], 1) is Fate.DOWN)
        there.network.heal()
        await there.until(lambda: all(complete(each, 6) for each in nodes))


async def test_a_cut_in_one_direction_harms_nobody() -> None:
    async with memory_cluster() as there:
        nodes = await there.of(5)
        there.network.cut(at(1), at(2))
        before = len(there.ears[3].members)
        await there.clock.sleep(60)
        assert all(complete(each, 5) for each in nodes) and len(there.ears[3].members) == before
