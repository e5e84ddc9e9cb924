"""Reaching a node: at once an error that names it where it is known to be down, and what goes wrong on the way in words
that say whether the call may have taken effect.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from hawker.api.caller import Caller
from hawker.api.directory import Directory, Peers
from hawker.api.transport_errors import ConnectionLost, Overdue, Unreachable
from hawker.errors import DeadlineExceeded, Fault, Unauthorized, Unavailable
from hawker.ids import NodeId


class Reach:
    """Only the owner of a thing is ever called for it, and the API between nodes passes nothing on: no call goes in
    circles."""

    def __init__(self, directory: Directory, peers: Peers) -> None:
        self.directory = directory
        self._peers = peers

    def caller(self, node_id: NodeId, behalf: str) -> Caller:
        """Raises `Unavailable` when the node is down or not known."""
        node = self.directory.node(node_id)
        if node is not None and not node.alive:
            raise Unavailable(
                f"{self.named(node_id)} is down: nothing was done; it is forgotten with `hawker node forget`"
            )
        return self._peers.caller(node_id, behalf=behalf)

    def alive(self, node_id: NodeId) -> bool:
        node = self.directory.node(node_id)
        return node is not None and node.alive

    def region_of(self, node_id: NodeId) -> str:
        node = self.directory.node(node_id)
        return "" if node is None else node.region

    def named(self, node_id: NodeId) -> str:
        region = self.region_of(node_id)
        return f"node {node_id} in region {region}" if region else f"node {node_id}"

    @contextmanager
    def errors(self, node_id: NodeId, *, harmless: bool) -> Iterator[None]:
        """What the node itself says passes as it is. `harmless`: the call changes nothing, so it may be made again."""
        try:
            yield
        except Unreachable as error:
            raise Unavailable(f"{self.named(node_id)} cannot be reached: nothing was done") from error
        except Overdue as error:
            if harmless:
                raise DeadlineExceeded(f"no answer from {self.named(node_id)} in time") from error
            raise Fault(f"no answer from {self.named(node_id)} in time: the call may have taken effect") from error
        except ConnectionLost as error:
            if harmless:
                raise Unavailable(f"the connection to {self.named(node_id)} was lost") from error
            text = f"the connection to {self.named(node_id)} was lost: the call may have taken effect"
            raise Fault(text) from error
        except Unauthorized as error:
            text = f"{self.named(node_id)} does not know this broker's key of the cluster: nothing was done"
            raise Unavailable(text) from error
