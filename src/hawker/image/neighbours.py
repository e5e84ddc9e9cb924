"""Other nodes that have an image: what a cache asks of its fleet, and the answers of a node that has none.

A neighbour is a source like a registry: nothing that comes from it is trusted before its digest was compared.
"""

from collections.abc import Sequence
from typing import Protocol

from hawker.ids import Digest, NodeId
from hawker.image.blobs import ImageReader
from hawker.image.source import ImageSource
from hawker.value_object import ValueObject


class ImportedElsewhere(ValueObject, frozen=True, kw_only=True):
    """The image that a name that was given to an upload means on other nodes. `at` is when it was given, in Unix
    seconds; `nodes` are all that said so, also those that cannot be asked now."""

    digest: Digest
    at: float
    nodes: tuple[NodeId, ...]


class Neighbours(Protocol):
    """Looks that wait for nobody."""

    def imported(self, reference: str) -> ImportedElsewhere | None:
        """The newest meaning of the name."""

    def holders(self, digest: Digest) -> Sequence[NodeId]:
        """Nodes that can be asked for the image, the best first."""

    def source(self, node: NodeId, reader: ImageReader) -> ImageSource:
        """The source of what the node has for this organization, or for everybody."""


class NoNeighbours:
    """Keeps `Neighbours` for a node alone."""

    def imported(self, reference: str) -> ImportedElsewhere | None:
        return None

    def holders(self, digest: Digest) -> Sequence[NodeId]:
        return ()

    def source(self, node: NodeId, reader: ImageReader) -> ImageSource:
        raise AssertionError("a node alone has no neighbours")
