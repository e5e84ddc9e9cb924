"""What a played host knows of the others."""

import pytest

from hawker.ids import AppName
from hawker.sim.deploys.deploy_host import DOWN_S, REGIONS, DeployDirectory
from hawker.sim.node.sim_worker import APP
from tests.sim.deploys.fleets import played_deploys
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


async def test_a_host_learns_late_that_another_one_is_down_and_soon_that_it_is_back() -> None:
    async with played_deploys() as fleet:
        one, other = fleet.hosts[:2]
        directory = DeployDirectory(one.fleet, one.id)
        assert [node.region for node in directory.nodes()] == list(REGIONS)
        await other.kill()
        await fleet.passes(DOWN_S - 1.5)
        assert all(node.alive for node in directory.nodes())
        await fleet.passes(2.5)
        assert [node.id for node in directory.nodes() if not node.alive] == [other.id]
        await fleet.again(other)
        await fleet.passes(1.0)
        assert all(node.alive for node in directory.nodes())


async def test_hosts_that_are_parted_count_each_other_as_down() -> None:
    async with played_deploys() as fleet:
        one, *others = fleet.hosts
        fleet.part(one)
        await fleet.passes(DOWN_S + 1)
        seen = [node.id for node in DeployDirectory(one.fleet, one.id).nodes() if node.alive]
        assert seen == [one.id]
        there = DeployDirectory(one.fleet, others[0].id)
        assert [node.id for node in there.nodes() if node.alive] == [host.id for host in others]


async def test_the_catalog_says_where_an_app_and_its_machines_are() -> None:
    async with played_deploys() as fleet:
        directory = DeployDirectory(fleet.home.fleet, fleet.hosts[1].id)
        assert directory.home_of_app(AppName(APP)) == fleet.home.id
        rows = [row for host in fleet.hosts for row in directory.machines_at(host.id, AppName(APP), "", 100)]
        assert len(rows) == 8 and directory.owner_of_machine(rows[0].id) is not None
        assert directory.owner_of_machine("nobody") is None and directory.owner_of_volume("nobody") is None
