"""Whose the 32 bits of a private network are. The number is computed from an organization and a name, and claimed: two
pairs that come to the same one, by chance or by search, do not get it both. Records alone; in a fleet the gateway asks
a majority of keepers first (`gateway/claims.py`) and tells the app's home what came of it.

A claim is for good: an address that somebody kept leads to nobody else's network, ever.
"""

from collections.abc import Iterator
from itertools import islice

from hawker.app import network_ids
from hawker.errors import Unavailable, Unprocessable
from hawker.record.app import APPS, NETWORK_IDS, NETWORKS, NETWORKS_OF_ORG, AppRecord, NetworkNumber, NetworkOwner
from hawker.store.contract import Reader, Tx

MAX_NETWORKS = 100_000
"""The most private networks that a node keeps the owners of."""
MAX_NETWORKS_OF_ORG = 1_000
"""The most of these networks that are of one organization."""
TRIES = 16


def keep(tx: Tx, number: int, owner: NetworkOwner) -> NetworkOwner:
    """The owner of the number at this node: whoever claimed it first, or made an app with it before there were claims.
    Raises `Unavailable` when this node keeps too many, `Unprocessable` when it keeps too many of the organization."""
    key = _key(number)
    there = tx.get(NETWORKS, key) or next(_before_claims(tx, number), None)
    if there is not None:
        return there
    if tx.count(NETWORKS) >= MAX_NETWORKS:
        raise Unavailable(f"this node keeps {MAX_NETWORKS} private networks already: no other one is made")
    if tx.count(NETWORKS_OF_ORG, _of_org(owner.org)) >= MAX_NETWORKS_OF_ORG:
        raise Unprocessable(
            f"network: organization '{owner.org:.80}' has claimed {MAX_NETWORKS_OF_ORG} private networks at a node, "
            "for good: use the name of a network that it has"
        )
    tx.put(NETWORKS, key, owner)
    tx.put(NETWORKS_OF_ORG, _of_org(owner.org) + key, NetworkNumber(network_id=number))
    return owner


def settle(tx: Tx, number: int, owner: NetworkOwner) -> None:
    """Settles that the number is this owner's: a majority said so."""
    tx.put(NETWORK_IDS, owner.name, NetworkNumber(network_id=number))


def settled(reader: Reader, owner: NetworkOwner) -> int | None:
    """The pair's number, where this node knows it."""
    known = reader.get(NETWORK_IDS, owner.name)
    if known is not None:
        return known.network_id
    apps = (app for _, app in reader.scan(APPS) if (app.org, app.network) == (owner.org, owner.network))
    oldest = min(apps, key=_age, default=None)
    return None if oldest is None else oldest.network_id


def number_of(tx: Tx, org: str, network: str) -> int:
    """The number of the pair's network, which is claimed here if nobody has claimed it yet. Raises `Unavailable` when
    none is free, `Unprocessable` as `keep`."""
    owner = NetworkOwner(org=org, network=network)
    known = settled(tx, owner)
    if known is not None:
        return known
    for number in islice(network_ids(org, network), TRIES):
        if keep(tx, number, owner) == owner:
            settle(tx, number, owner)
            return number
    raise Unavailable(f"the {TRIES} numbers that network '{network}' could have are all another's: choose another name")


def _before_claims(reader: Reader, number: int) -> Iterator[NetworkOwner]:
    apps = sorted((app for _, app in reader.scan(APPS) if app.network_id == number), key=_age)
    return (NetworkOwner(org=app.org, network=app.network) for app in apps)


def _age(app: AppRecord) -> tuple[float, str]:
    return app.created_at, app.name


def _of_org(org: str) -> str:
    """No organization's is the beginning of another's, whatever it is called."""
    return f"{len(org)}:{org}/"


def _key(number: int) -> str:
    return f"{number:08x}"
