"""An address of an app that is at one of three hosts at a time: the next one takes it over when that host is lost, or
its node is stopped, and clients go on."""

from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from anyio.to_thread import run_sync

from hawker.chaos.fleet.network_lab import NetworkLab
from hawker.chaos.fleet.real_fleet import LabFleet, LabNode
from hawker.clock import SystemClock
from hawker.errors import BadRequest
from tests.e2e.command_line import CommandLine
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_images import SMALL
from tests.waiting import eventually

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.long(
        reason="a street of three nodes, of which one is lost; tests/fleet/test_floating.py elects holders, "
        "tests/host/test_floating.py has the host's side, and test_edge.py an address of an app's own"
    ),
]
PORT, WITHIN_S = 18_446, 120.0


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LabFleet]:
    for name in ("street", "nodes"):
        (tmp_path / name).mkdir()
    with NetworkLab(tmp_path / "street", 3) as lab:
        fleet = LabFleet(lab, tmp_path / "nodes", SystemClock(), driver="container")
        pool = f"{lab.address(1).rpartition('.')[0]}.200/30"
        for number, stall in enumerate(fleet.stalls):
            flags = ("--label", f"host={number}", "--edge-address", stall.host.address, "--public-ipv4", pool)
            stall.daemon.flags = (*stall.daemon.flags, *flags, "--floating-addresses", pool)
        with fleet:
            yield fleet
    assert fleet.left == []


def holders(fleet: LabFleet, address: str) -> list[LabNode]:
    there = [stall for stall in fleet.stalls if stall.host.has_power]
    return [stall for stall in there if f" {address}/32 " in stall.host.run("ip", "-o", "-4", "address")]


async def test_an_address_goes_on_when_its_holder_is_lost_or_stopped(fleet: LabFleet) -> None:
    node = fleet.stalls[0].daemon
    hawker = CommandLine(node.environment | {"HAWKER_URL": node.url, "HAWKER_TOKEN": node.token})
    async with node.client() as client:
        shop = await Shop(client, "shop").open()
        for number in range(3):
            service = {"internal_port": 8080, "ports": [{"port": PORT, "handlers": ["http"]}]}
            metadata = {"hawker_labels": f"host={number}"}
            config = {"image": "hawker/hello", "services": [service], "metadata": metadata, **SMALL}
            await shop.run_somewhere(config, BadRequest)
    address = hawker.say("ips", "allocate", "-a", "shop", "v4").strip()

    def answers() -> bool:
        try:
            with urlopen(f"http://{address}:{PORT}/", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    async def at_one() -> bool:
        return len(holders(fleet, address)) == 1 and await run_sync(answers)

    await eventually(at_one, WITHIN_S)
    (first,) = holders(fleet, address)
    first.power_off()
    await eventually(at_one, WITHIN_S)
    (second,) = holders(fleet, address)
    second.daemon.stop()
    assert second not in holders(fleet, address), "a node that is stopped gives it up"
    await eventually(at_one, WITHIN_S)
    assert holders(fleet, address) != [second]
