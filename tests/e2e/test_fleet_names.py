"""Two real nodes: a machine of one finds a machine of the other by name, and not while that is lost."""

from pathlib import Path

import pytest

from hawker.chaos.hostile.python_image import PYTHON, REFERENCE, write_python_image
from hawker.errors import BadRequest
from tests.e2e.command_line import CommandLine
from tests.e2e.shop import Shop
from tests.e2e.test_dns import FIND
from tests.e2e.test_fleet_images import at_host, hosts, shops
from tests.e2e.test_fleet_join import WITHIN_S, Host, states
from tests.waiting import eventually

__all__ = ["hosts", "shops"]
pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]


@pytest.mark.long(reason="test_dns.py, tests/dns and the simulator of networks in `make check` are the short form")
async def test_names_have_machines_of_other_living_nodes(
    shops: tuple[Shop, Shop], hosts: tuple[Host, Host], tmp_path: Path
) -> None:
    shop, node = shops[0], hosts[0].node
    write_python_image(tmp_path / "python.tar")
    line = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
    line.say("images", "import", str(tmp_path / "python.tar"), "--as", REFERENCE)
    here, there = await at_host(shop, 0, REFERENCE), await at_host(shop, 1, REFERENCE, BadRequest)

    async def found() -> set[str]:
        answer = await shop.exec(here.id, PYTHON, "-c", FIND, f"{shop.app}.internal")
        return set(answer.stdout.strip().split(","))

    async def both() -> bool:
        return await found() == {here.private_ip, there.private_ip}

    async def one() -> bool:
        return await found() == {here.private_ip}

    async def all_alive() -> bool:
        return set((await states(shop.client)).values()) == {"alive"}

    await eventually(both, WITHIN_S)
    hosts[1].node.lose()
    try:
        await eventually(one, WITHIN_S)
    finally:
        hosts[1].node.start()
        await eventually(all_alive, WITHIN_S)
    await eventually(both, WITHIN_S)
