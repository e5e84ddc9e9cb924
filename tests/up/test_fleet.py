"""A node's seat in its cluster: which of its addresses counts, and what is said when it is not let in."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus

from hawker.clock import ManualClock
from hawker.cluster import found_cluster, write_cluster
from hawker.errors import CannotStart, Conflict, NotFound
from hawker.place import Place
from hawker.settings import Settings
from hawker.up.fleet import gossiping
from hawker.up.seat import cluster_of, take_seat

HOST, OTHER = "127.0.0.1", "127.0.0.2"


def address(directory: Path, **given: Any) -> tuple[str, int]:
    cluster = cluster_of(Settings(data_dir=directory, **given), Place(directory), ManualClock())
    assert cluster is not None
    return cluster.advertise, cluster.peer_port


def test_an_option_wins_over_the_written_setting_and_the_rest_stays(tmp_path: Path) -> None:
    write_cluster(Place(tmp_path).cluster, found_cluster(ManualClock(), advertise=HOST, peer_port=5281))
    assert address(tmp_path) == (HOST, 5281)
    assert address(tmp_path, advertise=OTHER) == (OTHER, 5281)
    assert address(tmp_path, peer_port=6281) == (HOST, 6281)
    assert address(tmp_path, advertise="[::1]", peer_port=6281) == ("::1", 6281)


def test_the_first_of_a_cluster_has_the_usual_port_unless_told(tmp_path: Path) -> None:
    assert address(tmp_path, advertise=HOST) == (HOST, 4281)
    assert address(tmp_path, advertise=HOST, peer_port=5281) == (HOST, 5281)


def test_a_node_that_is_alone_takes_no_seat(tmp_path: Path) -> None:
    assert take_seat(Settings(data_dir=tmp_path), Place(tmp_path), ManualClock()) is None


class Ended:
    """Gossip that ends so."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        raise self._error


@pytest.mark.anyio
async def test_a_twin_is_told_in_one_line_what_to_do() -> None:
    twin = Conflict("node id 0a is in use at 10.0.0.1:4281, by a process that began earlier")
    for error in (twin, ExceptionGroup("", [ExceptionGroup("", [twin])])):
        with pytest.raises(CannotStart, match=r"0a is in use at .* stop one of the two for good, and let"):
            await gossiping(Ended(error))


@pytest.mark.anyio
@pytest.mark.parametrize("error", [NotFound("x"), ExceptionGroup("", [Conflict("a"), Conflict("b")])])
async def test_another_error_stays_what_it_is(error: Exception) -> None:
    with pytest.raises(type(error)):
        await gossiping(Ended(error))
