import pytest

from hawker.ids import Digest, NodeId
from hawker.image.blobs import EVERYBODY
from hawker.image.neighbours import NoNeighbours


def test_a_node_alone_has_nobody_to_ask() -> None:
    alone = NoNeighbours()
    assert alone.imported("docker.io/library/app:v1") is None and alone.holders(Digest("sha256:0")) == ()
    with pytest.raises(AssertionError):
        alone.source(NodeId("0000000b"), EVERYBODY)
