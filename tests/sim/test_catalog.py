"""The catalog's replication under faults: sound code passes every seed, and each planted bug is found within a few."""

from pathlib import Path

import pytest

from hawker.sim.catalog.host import CatalogKit
from hawker.sim.catalog.planted import PLANTS
from hawker.sim.catalog.simulation import play, play_all
from hawker.sim.catalog.spread import spread
from hawker.sim.harness.planted_bug import PlantedBug
from tests.short_form import short_form

SEEDS = 200
SEEDS_ON_DISK = 6
MORE = pytest.mark.long(reason="more seeds; `make check` plays the first 300 too, by the command")

FOUND_WITHIN = {
    "skip-ahead": 10,
    "no-anti-entropy": 10,
    "no-epoch-bump": 15,
    "no-lease": 10,
    "no-tombstones": 30,
    "no-fence": 40,
    "no-floor": 30,
    "digest-not-updated": 15,
    "no-sweep": 10,
    "no-republish": 10,
    "old-epoch": 30,
    "aside-not-served": 10,
    "backwards": 30,
}


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=MORE) for first in range(10, SEEDS, 10))])
def test_replicas_converge_whatever_happens(first: int) -> None:
    found = {played.plan.seed: played.found for played in play_all(range(first, first + 10)) if played.found}
    assert found == {}


@pytest.mark.slow
def test_replicas_on_disk_converge_too(tmp_path: Path) -> None:
    for played in play_all(range(SEEDS_ON_DISK), files=tmp_path):
        assert (played.plan.seed, played.found) == (played.plan.seed, None)


QUICK = short_form(PLANTS, lambda bug: FOUND_WITHIN[bug.name] <= 10, "more seeds; the quick bugs are the short form")


@pytest.mark.parametrize("bug", QUICK, ids=lambda bug: bug.name)
def test_planted_bug_of_replication_is_found(bug: PlantedBug[CatalogKit]) -> None:
    assert any(played.found for played in play_all(range(FOUND_WITHIN[bug.name]), kit=bug.kit))


def test_a_seed_plays_the_same_again() -> None:
    one, other = play(3), play(3)
    assert (one.seconds, one.checked, one.plan) == (other.seconds, other.checked, other.plan)


def test_the_order_is_looked_at() -> None:
    assert sum(played.checked for played in play_all(range(5))) > 500


@pytest.mark.parametrize(("hosts", "regions", "p99_s", "copies"), [(10, 5, 0.3, 5), (100, 10, 0.25, 7)])
def test_a_change_spreads_as_fast_as_it_should(hosts: int, regions: int, p99_s: float, copies: float) -> None:
    found = spread(hosts, regions=regions, loss=0.01, changes=10)
    assert found.p99_s <= p99_s and found.copies <= copies
