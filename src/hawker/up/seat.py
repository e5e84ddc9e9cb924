"""What a node is told of its cluster before it begins: its seat, with the address for its peers, and an agent's token.
A node that is alone needs no more of a cluster than this.
"""

from pathlib import Path
from socket import socket

import msgspec

from hawker.api.listener import bind
from hawker.clock import Clock
from hawker.cluster import USUAL_PEER_PORT, Cluster, found_cluster, read_cluster
from hawker.errors import CannotStart
from hawker.log import Secret
from hawker.place import Place
from hawker.settings import Settings
from hawker.value_object import ValueObject


class Seat(ValueObject, frozen=True, kw_only=True):
    """A node's place in a cluster, before it begins: what it knows, and the address for its peers, which is bound."""

    cluster: Cluster
    listener: socket


def cluster_of(settings: Settings, place: Place, clock: Clock) -> Cluster | None:
    """The cluster of this node; None for a node that is alone. Each setting that is given wins over what cluster.json
    has."""
    known, host = read_cluster(place.cluster), settings.advertise
    if known is None and host is None:
        return None
    if known is None:
        known = found_cluster(clock, advertise=(host or "").strip("[]"), peer_port=USUAL_PEER_PORT)
    return msgspec.structs.replace(
        known,
        advertise=known.advertise if host is None else host.strip("[]"),
        peer_port=settings.peer_port or known.peer_port,
    )


def take_seat(settings: Settings, place: Place, clock: Clock) -> Seat | None:
    """The seat of this node in its cluster; None for a node that is alone. Writes nothing. Raises `CannotStart`."""
    cluster = cluster_of(settings, place, clock)
    if cluster is None:
        return None
    try:
        return Seat(cluster=cluster, listener=bind(cluster.advertise, cluster.peer_port + 1))
    except CannotStart as error:
        text = f"{error}".replace("--listen", "--advertise and --peer-port")
        raise CannotStart(f"the address for other nodes: {text}") from error


def token_of_agent(file: Path | None) -> Secret | None:
    """The token of the agent that keeps the catalog; None without a file. Raises `CannotStart`."""
    if file is None:
        return None
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotStart(f"cannot read the agent's token of --catalog-token-file {file}: {error}") from error
    if not text or not text.isascii() or not text.isprintable():
        raise CannotStart(f"--catalog-token-file {file} has no token: one line of printable letters is wanted")
    return Secret(text)
