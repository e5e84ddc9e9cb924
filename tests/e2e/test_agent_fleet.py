"""Fleets whose catalog is kept by Corrosion agents, one beside each node: played ones always, real ones where
`HAWKER_CORROSION` names the binary. Each scene leaves its fleet together for the next.
"""

import shutil
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from hawker.api.client import Client
from hawker.api.contract.catalog import QUERY_CATALOG, CatalogStatement
from hawker.api.contract.cluster import FORGET_NODE, LIST_NODES, ForgetQuery, NodeParams
from hawker.api.contract.node import HEALTH, LIST_FINDINGS
from hawker.auth.node_certificate import NodePapers
from hawker.cli.exits import ExitStatus
from hawker.clock import SystemClock
from hawker.errors import Fault, NotFound, Unauthorized, Unavailable
from hawker.http.message import OriginTls
from hawker.http.mutual_tls import MutualTls, name_of
from hawker.ids import NodeId
from hawker.up.node_files import ClusterFile
from tests.e2e.catalog_agents import FleetAgent, catalog_agents, settings_for
from tests.e2e.command_line import CommandLine, Done
from tests.e2e.returning import AWAY, logged, order_at
from tests.e2e.running_node import RunningNode
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import WITHIN_S, Host, host, peer_port, states
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@dataclass(frozen=True, slots=True)
class AgentFleet:
    hosts: Sequence[Host]
    agents: Sequence[FleetAgent]

    @property
    def ids(self) -> set[str]:
        return {each.node.node_id for each in self.hosts}

    async def together(self) -> None:
        """Once each node sees all of them alive, with their room, which the catalog has told."""
        for each in self.hosts:
            async with each.node.client() as client:
                await eventually(lambda: _see_all(client, self.ids), WITHIN_S)

    async def lists(self, app: str, expected: dict[str, str]) -> None:
        """Once every node lists these machines of the app in these states."""
        for each in self.hosts:
            if each.node.alive:
                async with each.node.client() as client:
                    await eventually(lambda: _lists(Shop(client, app), expected), WITHIN_S)

    async def replicas(self, app: str, expected: dict[str, str]) -> None:
        """Once the agent of every living node has these rows of the app's machines: no node is asked for another's."""
        for each in self.hosts:
            if each.node.alive:
                async with each.node.client() as client:
                    await eventually(lambda: _has_rows(client, app, expected), WITHIN_S)

    async def without(self, lost: Host) -> None:
        """Once all others have given it up."""
        for each in self.hosts:
            if each is not lost:
                async with each.node.client() as client:
                    await eventually(lambda: _gone(client, lost.node.node_id), WITHIN_S)


@contextmanager
def agent_fleet(place: Path, kind: str, count: int) -> Iterator[AgentFleet]:
    with catalog_agents(place, kind, count) as agents, ExitStack() as stack:
        hosts = [stack.enter_context(host(place / str(number), number)) for number in range(count)]
        for each, agent in zip(hosts, agents, strict=True):
            each.node.environment.update(settings_for(agent, each.node.directory))
        first = hosts[0]
        first.node.start("--advertise", first.address, "--peer-port", str(first.port))
        for each in hosts[1:]:
            said = each.join(first.node)
            assert said.returncode == 0, said.stderr
            each.node.launch()
        for each in hosts[1:]:
            each.node.wait_ready()
        yield AgentFleet(hosts, agents)


@pytest.fixture(scope="module", params=["played", "corrosion"])
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentFleet]:
    with agent_fleet(tmp_path_factory.mktemp("fleet"), request.param, 3) as fleet:
        yield fleet


async def test_orders_from_all_sides_are_filled_and_listed_alike(fleet: AgentFleet) -> None:
    await fleet.together()
    first, *_, last = fleet.hosts
    async with first.node.client() as one, last.node.client() as other:
        shop = await Shop(one, "sides").open()
        far = await order_at(shop, len(fleet.hosts) - 1, "echo far; exec sleep 600")
        await eventually(lambda: _knows(other, "sides"), WITHIN_S)
        near = await order_at(Shop(other, "sides"), 0)
        await fleet.lists("sides", {far.id: "started", near.id: "started"})
        await fleet.replicas("sides", {far.id: "started", near.id: "started"})
        await shop.logged(far.id, "far\n")
        assert await shop.said(far.id, "echo", "hello") == "hello\n"
        await shop.close()
    await fleet.lists("sides", {})
    await fleet.replicas("sides", {})


async def test_nodes_beside_agents_are_called_over_tls_and_by_nodes_only(fleet: AgentFleet) -> None:
    await fleet.together()
    first, *_ = fleet.hosts
    async with first.node.client() as one:
        addresses = {each.id: each.api for each in (await one.call(LIST_NODES)).nodes}
    assert addresses.keys() == fleet.ids
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    keys = ClusterFile(first.node.data_dir / "cluster.json", SystemClock()).keys
    member = MutualTls(NodePapers(NodeId(first.node.node_id), keys))
    for node_id, address in addresses.items():
        name = name_of(NodeId(node_id))
        for url, tls in (
            (address, OriginTls(lambda: blind, name)),
            (address.replace("https://", "http://"), None),
        ):
            async with Client(url, tls=tls) as stranger:
                with pytest.raises((Unavailable, Fault)):
                    await stranger.call(HEALTH)
        async with Client(address, tls=OriginTls(member.client, name)) as node:
            with pytest.raises(Unauthorized):  # TLS is done; the token is what it lacks
                await node.call(HEALTH)


@pytest.mark.parametrize("turns", [1, pytest.param(3, marks=pytest.mark.long(reason="one of them is the short form"))])
async def test_calls_that_carry_what_was_written_find_it_at_every_node(fleet: AgentFleet, turns: int) -> None:
    """As the command line does: each call says what the calls before it wrote."""
    await fleet.together()
    for number, each in enumerate(fleet.hosts):
        hawker = CommandLine({**each.node.environment, "HAWKER_DATA_DIR": str(each.node.data_dir)})
        for turn in range(turns):
            app = f"said-{number}-{turn}"
            hawker.say("apps", "create", app)
            run = ("machine", "run", "hawker/hello", "--app", app, "--label", f"host={turn}")
            made = hawker(*run, "--entrypoint", "/bin/sleep 60")
            assert made.status == 0, made.err
            listed = await eventually(partial(_listed_of_all, hawker, app), WITHIN_S)
            assert listed is not None and "started" in listed.out, listed
            hawker.say("apps", "destroy", app, "--force")


def _listed_of_all(hawker: CommandLine, app: str) -> Done | None:
    """Unless a node is named that did not answer in time: of what it has, the list knows what was told before."""
    listed = hawker("machine", "list", "--app", app)
    assert listed.status == 0, listed
    return None if "answer" in listed.err else listed


async def test_a_lost_hosts_machine_is_taken_over_and_the_host_gives_way(fleet: AgentFleet) -> None:
    await fleet.together()
    first, _second, *_, last = fleet.hosts
    async with first.node.client() as one:
        shop = await Shop(one, "lost").open()
        watched = await order_at(shop, len(fleet.hosts) - 1)
        spare = await order_at(shop, 1, standbys=[watched.id], skip_launch=True)
        await fleet.lists("lost", {watched.id: "started", spare.id: "stopped"})

        last.node.lose()
        await fleet.without(last)
        await fleet.lists("lost", {spare.id: "started"})
        assert await shop.away() == {watched.id}
        named = f"node {last.node.node_id} in region mad (is down|cannot be reached)"
        with pytest.raises(Unavailable, match=named):
            await shop.get(watched.id)

        last.node.start()
        await fleet.together()
        await fleet.lists("lost", {watched.id: "stopped", spare.id: "started"})
        await shop.close()


async def test_a_forgotten_node_is_gone_from_all_and_comes_back_with_what_it_has(fleet: AgentFleet) -> None:
    await fleet.together()
    first, *_, last = fleet.hosts
    async with first.node.client() as one:
        shop = await Shop(one, "forgotten").open()
        here, there = await order_at(shop, 0), await order_at(shop, len(fleet.hosts) - 1)
        await fleet.lists("forgotten", {here.id: "started", there.id: "started"})
        last.node.stop()
        await fleet.without(last)
        params = NodeParams(node_id=last.node.node_id)
        assert (await one.call(FORGET_NODE, params=params, query=ForgetQuery())).epoch > 0
        await eventually(lambda: _never_heard_of(one, last.node.node_id), WITHIN_S)
        await fleet.lists("forgotten", {here.id: "started"})
        with pytest.raises((NotFound, Unavailable)):
            await shop.get(there.id)
        last.node.start()
        await fleet.together()
        await fleet.lists("forgotten", {here.id: "started", there.id: "started"})
        await shop.close()


@pytest.mark.long(reason="all nodes begin again; home elections of tests/gateway are the short form")
async def test_an_app_of_a_forgotten_home_gets_a_new_one_after_all_nodes_began_again(fleet: AgentFleet) -> None:
    await fleet.together()
    *others, last = fleet.hosts
    async with last.node.client() as home:
        here = await order_at(await Shop(home, "homeless").open(), 0)
    await fleet.lists("homeless", {here.id: "started"})
    last.node.stop()
    await fleet.without(last)
    async with others[0].node.client() as one:
        await one.call(FORGET_NODE, params=NodeParams(node_id=last.node.node_id), query=ForgetQuery())
    for each in others:
        async with each.node.client() as one:
            await eventually(lambda: _never_heard_of(one, last.node.node_id), WITHIN_S)
    for each in others:
        each.node.stop()
    for each in others:
        each.node.start()
    async with others[0].node.client() as one:
        shop = Shop(one, "homeless")
        await eventually(lambda: _knows(one, "homeless"), WITHIN_S)
        more = await order_at(shop, 1)
        last.node.start()
        await fleet.together()
        await fleet.lists("homeless", {here.id: "started", more.id: "started"})
        await shop.close()


async def test_a_node_with_an_older_disk_says_what_is_true_now(fleet: AgentFleet) -> None:
    """Its agent has rows of machines that the node does not know any more, and lacks others."""
    await fleet.together()
    first, *_, last = fleet.hosts
    copy = last.node.directory / "older"
    async with first.node.client() as one:
        shop = await Shop(one, "older").open()
        number = len(fleet.hosts) - 1
        kept, ended = await order_at(shop, number), await order_at(shop, number)
        last.node.stop()
        copy.mkdir()
        for file in last.node.data_dir.glob("hawker.db*"):  # and nothing of what its machines go on to write
            shutil.copy2(file, copy)
        last.node.start()
        await fleet.together()
        lost = await order_at(shop, number)
        await shop.destroy(ended.id)
        await shop.gone(ended.id)
        await fleet.lists("older", {kept.id: "started", lost.id: "started"})
        last.node.stop()
        for name in ("hawker.db", "hawker.db-wal", "hawker.db-shm"):
            (last.node.data_dir / name).unlink(missing_ok=True)
            if (copy / name).exists():
                shutil.copy2(copy / name, last.node.data_dir / name)
        last.node.start()
        await fleet.together()
        await fleet.lists("older", {kept.id: "started", ended.id: "started"})
        await shop.close()
    shutil.rmtree(copy)


async def test_an_agent_that_dies_is_missed_in_words_and_heard_again(fleet: AgentFleet) -> None:
    await fleet.together()
    first, *_, last = fleet.hosts
    agent = fleet.agents[-1]
    async with first.node.client() as one, last.node.client() as other:
        shop = await Shop(one, "agentless").open()
        far = await order_at(shop, len(fleet.hosts) - 1)
        await fleet.lists("agentless", {far.id: "started"})
        agent.kill()
        assert (await shop.get(far.id)).state == "started", "asked of its node, which lives"
        told = [each.detail for each in (await other.call(LIST_FINDINGS)).findings if each.kind == "catalog agent"]
        assert told and "cannot be reached" in told[0], told
        await shop.stop(far.id)
        agent.start()
        await fleet.lists("agentless", {far.id: "stopped"})
        await eventually(lambda: _no_findings_of_agent(other), WITHIN_S)
        near = await order_at(Shop(other, "agentless"), 0)
        await fleet.lists("agentless", {far.id: "stopped", near.id: "started"})
        await shop.close()


@pytest.mark.long(reason="the same with three nodes is the short form")
@pytest.mark.timeout(1800)  # five nodes and their agents on one host
@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("kind", ["played", "corrosion"])
async def test_fleets_of_other_sizes_fill_orders_and_lose_a_host(tmp_path: Path, kind: str, count: int) -> None:
    """Of two nodes none can tell a lost host from a cut cable: there an operator starts the spare."""
    with agent_fleet(tmp_path, kind, count) as fleet:
        await fleet.together()
        first, last = fleet.hosts[0], fleet.hosts[-1]
        async with first.node.client() as one, last.node.client() as other:
            shop = await Shop(one, "shop").open()
            expected = {(await order_at(shop, number)).id: "started" for number in range(count - 1)}
            await eventually(lambda: _knows(other, "shop"), WITHIN_S)
            watched = await order_at(Shop(other, "shop"), count - 1)
            spare = await order_at(shop, count - 2, standbys=[watched.id], skip_launch=True)
            await fleet.lists("shop", expected | {watched.id: "started", spare.id: "stopped"})

            last.node.lose()
            await fleet.without(last)
            if count == 2:
                await eventually(lambda: logged(first, "spare is not started", because="minority"), WITHIN_S)
                await shop.start(spare.id)
            await fleet.lists("shop", expected | {spare.id: "started"})
        last.node.start()
        await fleet.together()
        await fleet.lists("shop", expected | {watched.id: "stopped", spare.id: "started"})
        async with last.node.client() as other:
            more = await order_at(Shop(other, "shop"), 0)
            await fleet.lists("shop", expected | {watched.id: "stopped", spare.id: "started", more.id: "started"})
            await Shop(other, "shop").close()


async def test_an_agent_that_cannot_keep_the_catalog_is_refused_at_boot_in_words(tmp_path: Path) -> None:
    schemas = ["CREATE TABLE nodes (node TEXT NOT NULL PRIMARY KEY)"]
    with catalog_agents(tmp_path, "played", 1, schemas) as (agent,):
        node = RunningNode(tmp_path, "--driver", "process", "--advertise", "127.0.0.1")
        node.environment.update(settings_for(agent, tmp_path))
        node.launch("--peer-port", str(peer_port("127.0.0.1")))
        assert node.ended() == ExitStatus.USAGE
        for words in (
            f"the catalog's agent at {agent.url} lacks what this version of Hawker needs",
            "nodes (no such column: region)",
            "machines (no such table: machines)",
            "write the output of `hawker catalog schema` into a file of the agent's db.schema_paths",
        ):
            assert words in node.errors


async def _see_all(client: Client, ids: set[str]) -> bool:
    found = (await client.call(LIST_NODES)).nodes
    return {each.id for each in found if each.state == "alive" and each.capacity is not None} == ids


async def _lists(shop: Shop, expected: dict[str, str]) -> bool:
    try:
        return {each.id: str(each.state) for each in await shop.machines()} == expected
    except NotFound:
        return not expected


async def _has_rows(client: Client, app: str, expected: dict[str, str]) -> bool:
    statement = CatalogStatement(query="SELECT id, state FROM machines WHERE app = ?", params=(app,))
    async with client.stream(QUERY_CATALOG, body=statement) as lines:
        return {line.row[0]: line.row[1] async for line in lines if line.row is not None} == expected


async def _knows(client: Client, app: str) -> bool:
    try:
        await Shop(client, app).machines()
    except NotFound:
        return False
    return True


async def _gone(client: Client, node_id: str) -> bool:
    return (await states(client)).get(node_id) in AWAY


async def _never_heard_of(client: Client, node_id: str) -> bool:
    return node_id not in await states(client)


async def _no_findings_of_agent(client: Client) -> bool:
    return not [each for each in (await client.call(LIST_FINDINGS)).findings if each.kind == "catalog agent"]
