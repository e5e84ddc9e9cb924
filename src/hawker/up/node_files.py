"""What a broker that is a process of its own reads of the node whose data directory it is given: who the node is, its
root token, its cluster's keys, its catalog. It writes nothing there.
"""

from collections.abc import Sequence
from pathlib import Path

from hawker.catalog.reads import PointReader
from hawker.clock import Clock
from hawker.cluster import Cluster, read_cluster
from hawker.errors import CannotStart
from hawker.ids import NodeId
from hawker.log import Secret, bind
from hawker.place import Place

LOOK_EVERY_S = 1.0

_log = bind("hawker.broker")


class ClusterFile:
    """The cluster's keys, as the node last wrote them down: they are changed while brokers run."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._cluster = _cluster(path)
        self._stamp = _stamp(path)
        self._look_at = 0.0

    def keys(self) -> Sequence[bytes]:
        """The keys of the cluster, the one in use first."""
        now = self._clock.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            self._renew()
        ring = self._cluster.keyring
        secrets = ring.secrets
        return [secrets[ring.primary], *(key for number, key in secrets.items() if number != ring.primary)]

    def _renew(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        try:
            self._cluster, self._stamp = _cluster(self._path), stamp
        except CannotStart as error:
            _log.warning("cannot read the cluster's keys anew", extra={"error": str(error)})


def own_node(place: Place) -> NodeId:
    node = place.remembered()
    if node is None:
        raise CannotStart(
            f"{place.root} is not the data directory of a node: start one with `hawker up --advertise HOST`"
        )
    return node


def own_region(glance: PointReader, node: NodeId) -> str:
    for (region,) in glance.rows("SELECT region FROM nodes WHERE node = ?", node):
        return str(region)
    raise CannotStart(f"node {node} has not told its catalog yet who it is: start the broker once the node runs")


def root_token(place: Place) -> Secret:
    try:
        text = place.token.read_text().strip()
    except OSError as error:
        raise CannotStart(f"cannot read the root token {place.token}: {error.strerror}") from error
    if not text:
        raise CannotStart(f"the token file {place.token} is empty: restart its node for a new one")
    return Secret(text)


def _cluster(path: Path) -> Cluster:
    cluster = read_cluster(path)
    if cluster is None:
        raise CannotStart(f"there is no {path}: a broker serves a node in a cluster, see `hawker up --advertise`")
    return cluster


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino
