"""Two real nodes of one cluster, on loopback addresses of their own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from hawker.errors import Unavailable
from tests.e2e.running_node import RunningNode
from tests.e2e.test_fleet_join import HOSTS, WITHIN_S, Host, peer_port, states
from tests.waiting import eventually


@contextmanager
def two_hosts(
    place: Path, flags: Sequence[Sequence[str]] = ((), ()), prepare: Callable[[Host], None] = lambda host: None
) -> Iterator[tuple[Host, Host]]:
    """Both up, each with its own `flags`; what one of them leaves on the host fails the test. `prepare` is called with
    each before it begins."""
    first, second = (_host(place / str(number), number, own) for number, own in enumerate(flags))
    try:
        for each in (first, second):
            prepare(each)
        first.node.start("--advertise", first.address, "--peer-port", str(first.port))
        assert second.join(first.node).returncode == 0
        second.node.start()
        yield first, second
    finally:
        strays = [stray for each in (first, second) for stray in each.node.withdraw()]
    assert not strays, f"left on the host: {strays}"


async def met(pair: Sequence[Host]) -> None:
    """Each knows that the others live."""

    async def all_alive(host: Host) -> bool:
        try:
            async with host.node.client() as client:
                seen = await states(client)
        except Unavailable:
            return False
        return all(seen.get(each.node.node_id) == "alive" for each in pair)

    for host in pair:
        await eventually(partial(all_alive, host), WITHIN_S)


def _host(place: Path, number: int, flags: Sequence[str]) -> Host:
    place.mkdir()
    node = RunningNode(place, "--ephemeral", "--region", "mad", "--label", f"host={number}", *flags)
    return Host(node, HOSTS[number], peer_port(HOSTS[number]))
