"""What the catalog's own file says of the fleet, by name."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
import pytest

from hawker.catalog.change import Token, Value
from hawker.catalog.reads import PointReader
from hawker.clock import ManualClock
from hawker.gateway.catalog_directory import NODES_FOR_S, UNHEARD_FOR_S, CatalogDirectory
from hawker.ids import AppName, NodeId
from tests.gateway.catalogs import A, B, C, Files

pytestmark = pytest.mark.anyio

SHOP = AppName("shop")
MACHINE, VOLUME = "0" * 14, "vol_0000000000000000"


class Town:
    """The catalog of A, which hears of B in its region and of C in another."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.files = Files(directory, self.clock)
        self.files.of(A)
        self.glance = PointReader(self.files.path(A))
        self.directory = CatalogDirectory(self.glance, self.clock, A, "mad")

    def told(self) -> CatalogDirectory:
        """Once it has heard of all, and what it remembers is old."""
        self.files.tell(A)
        self.clock.advance(1)
        return self.directory


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    town = Town(tmp_path)
    for node, region in ((A, "mad"), (B, "mad"), (C, "ams")):
        town.files.node(node, region)
    yield town
    town.glance.close()
    town.files.close()


def test_nodes_are_as_they_say_and_alive_where_nobody_gossips(town: Town) -> None:
    town.files.node(B, "mad", cordoned=1, drivers='["fake"]', labels='{"disk":"ssd"}')
    town.files.row("capacity", B, cpus=4, memory_mib=1024, disk_mib=5000, shared_ratio=2.0, used_memory_mib=24)
    nodes = {node.id: node for node in town.told().nodes()}
    assert [(node.id, node.region, node.alive) for node in nodes.values()] == [
        (A, "mad", True), (B, "mad", True), (C, "ams", True),
    ]  # fmt: skip
    found = nodes[B]
    assert (found.cordoned, found.draining, found.drivers, found.labels) == (True, False, ("fake",), {"disk": "ssd"})
    assert found.capacity is not None and (found.capacity.cpus, found.capacity.shared_ratio) == (4, 2.0)
    assert found.used is not None and found.used.memory_mib == 24
    assert nodes[A].capacity is None and nodes[C].capacity is None


def test_gossip_says_who_lives(town: Town) -> None:
    town.files.members(A, [(B, "suspect"), (C, "down")])
    alive = {node.id: node.alive for node in town.told().nodes()}
    assert alive == {A: True, B: True, C: False}
    town.files.members(A, [(A, "alive"), (B, "left")])
    assert {node.id: node.alive for node in town.told().nodes()} == {A: True, B: False, C: False}


def test_a_node_that_gossip_is_silent_about_is_down_once_there_was_time_to_hear_of_it(town: Town) -> None:
    def unheard() -> set[NodeId]:
        return {node.id for node in town.directory.nodes() if node.unheard}

    town.files.members(A, [(A, "alive")])
    town.told()
    assert unheard() == {B, C}, "it has just begun"
    town.clock.advance(3600)
    assert unheard() == {B, C}, "it is cut off: nobody told it of anybody"
    town.files.members(A, [(B, "alive")])
    town.clock.advance(NODES_FOR_S)
    assert unheard() == {C}
    town.clock.advance(UNHEARD_FOR_S - 1)
    assert unheard() == {C} and not any(node.is_down for node in town.directory.nodes())
    town.clock.advance(1)
    assert not unheard() and [node.id for node in town.directory.nodes() if node.is_down] == [C]


def test_a_node_that_gossip_saw_go_is_down_at_once(town: Town) -> None:
    town.files.members(A, [(A, "alive"), (B, "down"), (C, "left")])
    assert [node.id for node in town.told().nodes() if node.is_down] == [B, C]


def test_nodes_are_remembered_for_a_moment_only(town: Town) -> None:
    town.told().nodes()
    nodes = town.directory.nodes()
    town.clock.advance(NODES_FOR_S)
    assert town.directory.nodes() is nodes
    town.files.members(A, [(B, "down")])
    node = town.directory.node(B)
    assert node is not None and node.alive
    town.clock.advance(NODES_FOR_S)
    node = town.directory.node(B)
    assert node is not None and not node.alive
    assert town.directory.node(NodeId("ffffffff")) is None


def test_of_two_rows_of_a_machine_the_greater_generation_counts(town: Town) -> None:
    town.files.row("machines", B, id=MACHINE, generation=2, updated_at=1.0)
    town.files.row("machines", A, id=MACHINE, generation=1, updated_at=9.0)
    assert town.told().owner_of_machine(MACHINE) == B
    assert town.directory.owner_of_machine("f" * 14) is None


def test_a_volume_is_where_its_row_is(town: Town) -> None:
    town.files.row("volumes", B, id=VOLUME, app=SHOP)
    assert town.told().owner_of_volume(VOLUME) == B and town.directory.owner_of_volume("vol_x") is None


def test_a_node_s_last_words_are_listed_by_id(town: Town) -> None:
    for id_ in ("a", "b", "c"):
        town.files.row("machines", B, id=id_, app=SHOP, state="started", name=f"m{id_}", metadata='{"tier":"front"}')
        town.files.row("volumes", B, id=id_, app=SHOP, name="data", state="created", size_gb=3, machine="m")
    town.files.row("machines", B, id="d", app="other")
    town.files.row("machines", A, id="e", app=SHOP)
    told = town.told()
    assert [row.id for row in told.machines_at(B, SHOP, "", 9)] == ["a", "b", "c"]
    (row,) = told.machines_at(B, SHOP, "a", 1)
    assert (row.id, row.name, row.state, row.metadata) == ("b", "mb", "started", {"tier": "front"})
    (volume,) = told.volumes_at(B, SHOP, "b", 5)
    assert (volume.id, volume.name, volume.size_gb, volume.machine) == ("c", "data", 3, "m")


def test_an_app_s_home_is_the_first_of_the_nodes_that_know_it(town: Town) -> None:
    town.files.row("apps", A, name=SHOP, org="acme", home=0, record="not json")
    town.files.row("apps", C, name=SHOP, org="acme", home=1, record='{"created_at":5.5}')
    town.files.row("apps", B, name="other", org="personal", home=1)
    told = town.told()
    assert told.nodes_of_app(SHOP) == (C, A) and told.home_of_app(SHOP) == C and told.org_of(SHOP) == "acme"
    assert [(known.node, known.home, known.created_at) for known in told.app(SHOP)] == [(C, True, 5.5), (A, False, 0.0)]
    assert {known.name for known in told.apps("acme")} == {SHOP} and len(told.apps()) == 3
    nobody = AppName("nobody")
    assert (told.home_of_app(nobody), told.org_of("nobody"), told.nodes_of_app(nobody)) == (None, None, ())


def test_where_a_node_is_called(town: Town) -> None:
    assert town.told().address_of(B) == f"http://{B}" and town.directory.address_of(NodeId("ffffffff")) is None


def test_tokens_that_any_node_ended_are_known(town: Town) -> None:
    told = town.told()
    assert not told.is_revoked(["t"]) and told.revocation("t") is None and not told.revocations()
    town.files.row("revoked_tokens", B, token_id="t", at=5.0, by="bob", note="lost")
    town.files.row("revoked_tokens", C, token_id="t", at=3.0, by="ann")
    town.files.tell(A)
    assert told.is_revoked(["s", "t"]) and not told.is_revoked(["s"]) and not told.is_revoked([])
    first = told.revocation("t")
    assert first is not None and (first.at, first.by) == (3.0, "ann")
    assert [(each.at, each.by) for each in told.revocations()] == [(3.0, "ann"), (5.0, "bob")]


def test_a_token_is_looked_for_by_its_key_however_many_were_ended(town: Town) -> None:
    asked: list[str] = []

    class Explained:
        def rows(self, query: str, *params: Value) -> Sequence[tuple[Value, ...]]:
            asked.extend(str(row[3]) for row in town.glance.rows(f"EXPLAIN QUERY PLAN {query}", *params))
            return ()

    directory = CatalogDirectory(Explained(), town.clock, A, "mad")
    directory.is_revoked(["t"])
    directory.revocation("t")
    told = [line for line in asked if "revoked_tokens" in line]
    assert len(told) == 2 and all("USING" in line and "INDEX revoked_tokens_by_id" in line for line in told), asked


def test_a_long_note_of_an_older_node_is_not_read_whole(town: Town) -> None:
    town.files.row("revoked_tokens", B, token_id="t", at=5.0, by="b" * 5000, note="n" * 5000)
    (found,) = town.told().revocations()
    assert (len(found.by), len(found.note)) == (200, 200)


def test_rows_that_make_no_sense_spoil_nothing(town: Town) -> None:
    town.files.node(B, "mad", labels="[", drivers='{"a":1}', cordoned="what")
    town.files.row("capacity", B, cpus="many", memory_mib=b"\xff")
    found = town.told().node(B)
    assert found is not None and (found.labels, found.drivers) == ({}, ())
    assert found.capacity is not None and found.capacity.cpus == 0


async def test_a_place_is_reached_once_its_version_is_here(town: Town) -> None:
    town.told()
    place = town.files.row("machines", B, id=MACHINE)
    assert not await town.directory.caught_up(place, timeout_s=0)
    assert await town.directory.caught_up(town.files.row("machines", A, id="f" * 14), timeout_s=0)
    town.files.tell(A)
    assert await town.directory.caught_up(place, timeout_s=0)
    origin, epoch, version = place.split(":")
    assert not await town.directory.caught_up(f"{origin}:{epoch}:{int(version) + 1}", timeout_s=0)
    assert await town.directory.caught_up(f"{origin}:0:99", timeout_s=0)  # it began anew since


async def test_a_place_that_is_on_its_way_is_waited_for(town: Town) -> None:
    town.told()
    place = town.files.row("machines", B, id=MACHINE)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tell_when_waited_for, town)
        assert await town.directory.caught_up(place, timeout_s=60)


async def _tell_when_waited_for(town: Town) -> None:
    await anyio.lowlevel.checkpoint()
    town.files.tell(A)


async def test_a_place_in_a_catalog_that_others_keep_is_theirs_to_judge(town: Town) -> None:
    asked: list[tuple[Token, float]] = []

    async def reached(token: Token, *, timeout_s: float) -> bool:
        asked.append((token, timeout_s))
        return len(asked) == 1

    directory = CatalogDirectory(town.glance, town.clock, A, "mad", reached)
    assert await directory.caught_up(f"{B}:5:7", timeout_s=2)
    assert not await directory.caught_up(f"{B}:5:7", timeout_s=2)
    assert asked == [(Token(origin=B, epoch=5, version=7), 2)] * 2


async def test_nobody_waits_for_the_stream_of_another_region(town: Town) -> None:
    town.told()
    with anyio.fail_after(30):
        assert not await town.directory.caught_up(f"{C}:77:1", timeout_s=1e9)


def test_forgotten_is_who_was_known_and_is_no_more(town: Town) -> None:
    directory = town.told()
    assert directory.node(B) is not None
    assert not directory.forgotten(B) and not directory.forgotten(C)
    town.files.of(A).fence(B, 1 << 60)
    assert town.told().forgotten(B) and not directory.forgotten(C)


def test_of_two_homes_the_one_of_the_later_reign_counts(town: Town) -> None:
    town.files.row("apps", A, name=SHOP, home=1)
    town.files.row("apps", B, name=SHOP, home=2)
    assert town.told().home_of_app(SHOP) == B
