"""What a node knows of the hosts of nodes that are down."""

import anyio
import pytest

from hawker.clock import Clock, SystemClock
from hawker.fleet.presence import PORT_OFFSET, HostAsker, HostWatch, HostWord, answer, read_question
from hawker.gossip.contract import Fate, Member
from hawker.ids import NodeId
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
KEY = b"k" * 32
NODE = NodeId("bbbbbbbb")


def member(fate: Fate = Fate.DOWN, address: str = "127.0.0.1:1") -> Member:
    return Member(node=NODE, address=address, incarnation=1, fate=fate)


class Host:
    def __init__(self, word: HostWord | None) -> None:
        self.word = word
        self.asked = 0

    async def __call__(self, asked: Member) -> HostWord | None:
        self.asked += 1
        return self.word


def watch(host: Host, member: Member, lost_after_s: float | None = None, clock: Clock | None = None) -> HostWatch:
    return HostWatch(lambda: [member], host, clock or SystemClock(), lost_after_s)


async def test_a_host_that_answers_is_away_and_a_silent_one_is_not() -> None:
    up, silent = Host(HostWord(node=NODE, away_s=5.0)), Host(None)
    assert await watch(up, member()).look(NODE) and not await watch(silent, member()).look(NODE)
    assert up.asked == silent.asked == 1


async def test_nobody_is_asked_about_a_node_that_lives() -> None:
    host = Host(HostWord(node=NODE))
    assert not await watch(host, member(Fate.ALIVE)).look(NODE)
    assert not await watch(host, member()).look(NodeId("cccccccc")) and host.asked == 0


async def test_a_word_that_is_fresh_is_not_asked_for_again() -> None:
    host = Host(HostWord(node=NODE))
    known = watch(host, member())
    assert await known.look(NODE) and await known.look(NODE) and known.is_away(NODE)
    assert host.asked == 1


async def test_a_daemon_that_is_away_for_so_long_counts_as_a_lost_host() -> None:
    word = HostWord(node=NODE, away_s=60.0)
    assert not await watch(Host(word), member(), lost_after_s=60.0).look(NODE)
    assert await watch(Host(word), member(), lost_after_s=61.0).look(NODE)


async def test_a_watch_asks_again_and_forgets_who_is_back() -> None:
    host, members = Host(HostWord(node=NODE)), [member()]
    known = HostWatch(lambda: members, host, SystemClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(known.serve)
        await eventually(lambda: known.is_away(NODE))
        members[:] = [member(Fate.ALIVE)]
        await eventually(lambda: not known.is_away(NODE))
        tasks.cancel_scope.cancel()


async def test_a_host_is_asked_over_the_network_and_only_its_own_word_counts() -> None:
    async with await anyio.create_udp_socket(local_host="127.0.0.1") as there:
        port = int(there.extra_attributes[anyio.abc.SocketAttribute.local_port]())
        said = [HostWord(node=NodeId("cccccccc")), HostWord(node=NODE, away_s=3.0)]

        async def serve() -> None:
            async for data, asker in there:
                asked = read_question([KEY], data)
                if asked is not None:
                    await there.sendto(b"noise", *asker)
                    await there.sendto(answer(*asked, said.pop(0) if len(said) > 1 else said[0]), *asker)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            ask = HostAsker(lambda: [KEY], SystemClock())
            word = await ask(member(address=f"127.0.0.1:{port - PORT_OFFSET}"))
            assert word == HostWord(node=NODE, away_s=3.0)
            stranger = HostAsker(lambda: [b"x" * 32], SystemClock())
            assert await stranger(member(address=f"127.0.0.1:{port - PORT_OFFSET}")) is None
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("address", ["", "127.0.0.1:65534", "nonsense", "127.0.0.1:x"])
async def test_an_address_that_is_none_is_silence(address: str) -> None:
    assert await HostAsker(lambda: [KEY], SystemClock())(member(address=address)) is None
    assert await HostAsker(list, SystemClock())(member()) is None
