"""Who reaches whom: a machine's private address, its network, the host, and the world outside."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hawker.api.contract.node import MACHINE_METRICS
from hawker.worker.scrape import UP
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop
from tests.e2e.web import answers, ask
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]

LONG_S, QUIET_S = 30, 1  # how long what must get through is tried, and what must not
_FETCH = "exec 3<>/dev/tcp/{address}/{port} && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3"


async def fetched(shop: Shop, machine_id: str, address: str, port: int = 8080, within_s: int = LONG_S) -> str | None:
    """What a machine gets from a web server; None when it does not get through to it."""
    script = _FETCH.format(address=address, port=port)
    answer = await shop.exec(machine_id, "timeout", str(within_s), "bash", "-c", script)
    return answer.stdout if answer.exit_code == 0 else None


async def barred(shop: Shop, machine_id: str, address: str, port: int = 8080) -> bool:
    """Whether it does not get through."""
    return await fetched(shop, machine_id, address, port, QUIET_S) is None


@pytest.fixture
async def neighbour(shop: Shop, _numbers: Iterator[int]) -> Shop:
    return Shop(shop.client, f"neighbour-{next(_numbers)}")


@contextmanager
def listening(address: str) -> Iterator[tuple[str, int]]:
    """A service of the host."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        yield address, listener.getsockname()[1]


async def test_the_host_reaches_a_machine_at_an_address_that_stays(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO})
    assert machine.private_ip.startswith("fdaa:")
    await eventually(lambda: answers(machine.private_ip))
    await shop.stop(machine.id)
    await shop.wait(machine.id, "stopped")
    await shop.start(machine.id)
    again = await shop.wait(machine.id, "started")
    assert again.private_ip == machine.private_ip
    await eventually(lambda: answers(machine.private_ip))


async def test_an_address_outlives_the_daemon(tmp_path: Path) -> None:
    with running_node(tmp_path / "lasting", "--ephemeral") as node:
        async with node.client() as client:
            machine = await (await Shop(client, "shop").open()).run({"image": HELLO})
            await eventually(lambda: answers(machine.private_ip))
        node.kill()
        assert machine.id in ask(machine.private_ip).body
        node.start()
        assert machine.id in ask(machine.private_ip).body
        async with node.client() as client:
            assert (await Shop(client, "shop").get(machine.id)).private_ip == machine.private_ip


async def test_machines_of_one_network_reach_each_other(shop: Shop, neighbour: Shop, toolbox_image: str) -> None:
    """The network is the organization's: another app of it is on the same one."""
    await neighbour.open()
    web = await neighbour.run({"image": HELLO})
    await eventually(lambda: answers(web.private_ip))
    client = await shop.run({"image": toolbox_image})
    page = await fetched(shop, client.id, web.private_ip)
    assert page and web.id in page
    await neighbour.close()


async def test_machines_of_different_networks_do_not(shop: Shop, neighbour: Shop, toolbox_image: str) -> None:
    await neighbour.open(network="elsewhere")
    web = await neighbour.run({"image": HELLO})
    await eventually(lambda: answers(web.private_ip))
    assert web.private_ip.split(":")[1:3] != (await shop.run({"image": HELLO})).private_ip.split(":")[1:3]
    client = await shop.run({"image": toolbox_image})
    assert await barred(shop, client.id, web.private_ip)
    await neighbour.close()


async def test_a_machine_does_not_reach_the_hosts_services(shop: Shop, toolbox_image: str, node: RunningNode) -> None:
    """Neither at the network's gateway nor at the host's own addresses, whatever listens there; not even the API."""
    machine = await shop.run({"image": toolbox_image})
    gateway = ":".join(machine.private_ip.split(":")[:3]) + "::1"
    with listening("::") as (_, port6), listening("0.0.0.0") as (_, port4):
        for address, port in ((gateway, port6), ("169.254.1.1", port4), (host_address(), port4)):
            socket.create_connection((address, port), timeout=30).close()  # it is there, for the host
            assert await barred(shop, machine.id, address, port), address
    port = int(node.url.rpartition(":")[2])
    assert await barred(shop, machine.id, "127.0.0.1", port)


def host_address() -> str:
    """The one that the host has towards the world, or a loopback one where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.2"
        return str(probe.getsockname()[0])


async def test_a_machine_has_its_own_ports(shop: Shop) -> None:
    first, second = await shop.run({"image": HELLO}), await shop.run({"image": HELLO})
    await eventually(lambda: answers(first.private_ip) and answers(second.private_ip))
    assert first.id in ask(first.private_ip).body
    assert second.id in ask(second.private_ip).body


async def test_a_machines_metrics_are_handed_on_with_labels_that_say_whose_they_are(shop: Shop) -> None:
    loud = await shop.run({"image": HELLO, "metrics": {"port": 8080, "path": "/metrics"}})
    deaf = await shop.run({"image": HELLO, "metrics": {"port": 9}})
    await eventually(lambda: answers(loud.private_ip))

    async def handed_on() -> bool:
        """A machine that a busy host lets wait for three seconds is left out of that page."""
        page = await shop.client.call(MACHINE_METRICS)
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
        of_app = [(each.name, each.labels["instance"]) for each in samples if each.labels["app"] == shop.app]
        up = {each.labels["instance"]: each.value for each in samples if each.name == UP}
        return ("hello_requests_total", loud.id) in of_app and (up[loud.id], up[deaf.id]) == (1, 0)

    await eventually(handed_on)
