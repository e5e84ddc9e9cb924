"""App."""

import msgspec

from hawker.ids import AppName, NodeId
from hawker.store.contract import Bucket


class AppRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A named group of machines. `number` is its internal numeric id; `network_id` the 32 bits in its addresses.
    `home` is the node where it was made, when that is another one: its secrets and policies are kept there. `reign`
    counts how often another node became its home because the one before was forgotten."""

    id: str
    number: int
    name: AppName
    org: str
    network: str
    network_id: int
    created_at: float
    idempotency_key: str | None = None
    home: NodeId | None = None
    reign: int = 0


class CarriedApp(msgspec.Struct, frozen=True, kw_only=True):
    """Of an app whose home is another node: when that was read for what of the app is here, by its own clock."""

    home: NodeId
    read_at: float


class NameRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A name of an app that this node keeps for whoever makes it. `claim` tells one who asked from another; `home` is
    where the app is to be; `at` is this node's clock."""

    claim: str
    home: NodeId
    at: float


APPS = Bucket("apps", AppRecord)  # app name


CARRIED_APPS = Bucket("carried_apps", CarriedApp)  # app name


NAMES = Bucket("app_names", NameRecord)  # app name
