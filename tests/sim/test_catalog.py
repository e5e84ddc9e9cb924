"""The catalog's replication under faults: sound code passes every seed, and each planted bug is found within a few."""

from pathlib import Path

import pytest

from hawker.catalog.planted import Bug
from hawker.sim.catalog.run import play, play_all
from hawker.sim.catalog.spread import spread

SEEDS = 200
SEEDS_ON_DISK = 6
MORE = pytest.mark.long(reason="more seeds; `make check` plays the first 300 too, by the command")

FOUND_WITHIN = {
    Bug.SKIP_AHEAD: 10,
    Bug.NO_ANTI_ENTROPY: 10,
    Bug.NO_EPOCH_BUMP: 15,
    Bug.NO_LEASE: 10,
    Bug.NO_TOMBSTONES: 30,
    Bug.NO_FENCE: 40,
    Bug.NO_FLOOR: 30,
    Bug.DIGEST_NOT_UPDATED: 15,
    Bug.NO_SWEEP: 10,
    Bug.NO_REPUBLISH: 10,
    Bug.OLD_EPOCH: 30,
    Bug.ASIDE_NOT_SERVED: 10,
    Bug.BACKWARDS: 30,
}


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=MORE) for first in range(50, SEEDS, 50))])
def test_replicas_converge_whatever_happens(first: int) -> None:
    found = {played.plan.seed: played.found for played in play_all(range(first, first + 50)) if played.found}
    assert found == {}


@pytest.mark.slow
def test_replicas_on_disk_converge_too(tmp_path: Path) -> None:
    for played in play_all(range(SEEDS_ON_DISK), files=tmp_path):
        assert (played.plan.seed, played.found) == (played.plan.seed, None)


@pytest.mark.parametrize("bug", Bug)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    assert any(played.found for played in play_all(range(FOUND_WITHIN[bug]), planted=frozenset({bug})))


def test_a_seed_plays_the_same_again() -> None:
    one, other = play(3), play(3)
    assert (one.seconds, one.checked, one.plan) == (other.seconds, other.checked, other.plan)


def test_the_order_is_looked_at() -> None:
    assert sum(played.checked for played in play_all(range(5))) > 500


@pytest.mark.parametrize(("hosts", "regions", "p99_s", "copies"), [(10, 5, 0.3, 5), (100, 10, 0.25, 7)])
def test_a_change_spreads_as_fast_as_it_should(hosts: int, regions: int, p99_s: float, copies: float) -> None:
    found = spread(hosts, regions=regions, loss=0.01, changes=10)
    assert found.p99_s <= p99_s and found.copies <= copies
