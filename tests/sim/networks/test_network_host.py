"""A played node around the real parts: what it says of itself, what its resolver answers, what it shows."""

from collections.abc import Awaitable, Callable

import anyio

from hawker.ids import AppName, MachineId, NodeId
from hawker.record.app import AppRecord
from hawker.sim.harness.loop import LoopClock, VirtualTimeLoop
from hawker.sim.networks.network_host import NetworkHost, NetworkParts, flycast_of, issued, prefix_of

NUMBER = 0x161BAD07


def app_at(host: NetworkHost) -> AppRecord:
    return AppRecord(
        id="app1", number=1, name=AppName("app1"), org="acme", network="n1", network_id=NUMBER, created_at=1.0
    )


def test_a_node_answers_for_what_it_has_and_what_it_was_told() -> None:
    async def play() -> None:
        clock, lives = LoopClock(1), dict[NodeId, bool]()
        first, second = (NetworkHost(number, clock, NetworkParts(), lives) for number in (1, 2))
        for host, machine in ((first, "1"), (second, "2")):
            await host.carry(app_at(host), first.id)
            await host.make_machine(MachineId(machine.zfill(14)), app_at(host))
        first.replica.rows("INSERT INTO nodes (node, region) VALUES (?, 'mad')", second.id)
        first.news()
        first.replica.write(second.news())
        await first.look()
        ips = [machine.network.private_ip for host in (first, second) for machine in host.machines]
        assert sorted(first.answer("app1.internal", NUMBER) or ()) == sorted(ips)
        assert first.answer("app1.internal", NUMBER + 1) == []
        assert first.answer("app1.flycast", NUMBER) == [flycast_of(NUMBER, "app1")]
        assert first.answer("example.com", NUMBER) is None, "somebody else is asked"
        assert first.allowed == {second.me.key: frozenset({prefix_of(second.machines[0])})}

    in_virtual_time(play)


def test_a_node_tells_what_is_new_and_takes_back_what_is_gone() -> None:
    async def play() -> None:
        host = NetworkHost(1, LoopClock(1), NetworkParts(), {})
        await host.carry(app_at(host), host.id)
        await host.make_machine(MachineId("1".zfill(14)), app_at(host))
        assert len(host.news()) == 4 and host.news() == []
        await host.drop(host.machines[0].id)
        assert [each.query.split()[0] for each in host.news()] == ["DELETE", "DELETE"]

    in_virtual_time(play)


def test_a_node_shows_the_certificate_of_its_app_with_the_names_in_it() -> None:
    async def play() -> None:
        clock = LoopClock(1)
        host = NetworkHost(1, clock, NetworkParts(), {})
        await host.carry(app_at(host), host.id)
        await host.certificates.put("app1", "a.example.com", *issued("a.example.com", clock.now(), 60.0))
        host.tell()
        shown = host.book.find("a.example.com")
        assert shown is not None and host.names_in(shown) == ["a.example.com"]
        assert shown.not_after == clock.now() + 60.0 and host.book.find("b.example.com") is None

    in_virtual_time(play)


def in_virtual_time(play: Callable[[], Awaitable[None]]) -> None:
    anyio.run(play, backend_options={"loop_factory": VirtualTimeLoop})
