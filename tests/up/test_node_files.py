"""What a broker reads of its node's directory, and what it says when that is not there."""

import base64
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from hawker.catalog.reads import PointReader
from hawker.clock import ManualClock
from hawker.cluster import KEY_BYTES, Keyring, found_cluster, write_cluster
from hawker.errors import CannotStart
from hawker.place import Place
from hawker.up.node_files import LOOK_EVERY_S, ClusterFile, own_node, own_region, root_token
from tests.gateway.catalogs import A, Files


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_keys_are_read_the_one_in_use_first_and_anew_when_they_change(place: Place) -> None:
    clock = ManualClock()
    cluster = found_cluster(clock, advertise="10.0.0.1", peer_port=4281)
    write_cluster(place.cluster, cluster)
    file = ClusterFile(place.cluster, clock)
    (first,) = file.keys()
    number = str(cluster.keyring.primary + 1)
    keys = {**cluster.keyring.keys, number: base64.b64encode(bytes(KEY_BYTES)).decode()}
    ring = Keyring(keys=keys, primary=int(number), version=2)
    write_cluster(place.cluster, msgspec.structs.replace(cluster, keyring=ring))
    assert list(file.keys()) == [first]
    clock.advance(LOOK_EVERY_S)
    assert list(file.keys()) == [ring.secrets[int(number)], first]
    place.cluster.write_text("half a fi")
    clock.advance(LOOK_EVERY_S)
    assert list(file.keys()) == [ring.secrets[int(number)], first]
    place.cluster.unlink()
    clock.advance(LOOK_EVERY_S)
    assert len(file.keys()) == 2


def test_a_node_that_is_alone_has_no_broker(place: Place) -> None:
    with pytest.raises(CannotStart, match="a broker serves a node in a cluster"):
        ClusterFile(place.cluster, ManualClock())


def test_the_node_s_identity_and_place(place: Place) -> None:
    place.remember(A)
    files = Files(place.root, ManualClock())
    files.of(A)
    glance = PointReader(files.path(A))
    assert own_node(place) == A
    with pytest.raises(CannotStart, match="has not told its catalog"):
        own_region(glance, A)
    files.node(A, "mad")
    assert own_region(glance, A) == "mad"
    glance.close()
    files.close()


@pytest.mark.parametrize("read", [own_node, root_token])
def test_a_directory_that_is_no_nodes_is_refused(place: Place, read: Callable[[Place], object]) -> None:
    with pytest.raises(CannotStart):
        read(place)


def test_the_root_token_is_the_nodes(place: Place) -> None:
    place.token.write_text("hwk_1\n")
    assert root_token(place).reveal() == "hwk_1"
    place.token.write_text("\n")
    with pytest.raises(CannotStart, match="is empty"):
        root_token(place)
