"""Network policy."""

import msgspec

from hawker.policy import Direction, Transport
from hawker.store.contract import Bucket


class PortRule(msgspec.Struct, frozen=True, kw_only=True):
    """Without a port, every one of the protocol."""

    protocol: Transport
    port: int | None = None


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True):
    """What it allows; None is everything."""

    direction: Direction
    ports: tuple[PortRule, ...] | None = None


class PolicySelector(msgspec.Struct, frozen=True, kw_only=True):
    """Machines of an app: all, these, or those with all of these pairs of metadata."""

    all: bool = False
    machines: tuple[str, ...] = ()
    metadata: dict[str, str] = {}


class PolicyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One network policy of an app. Times are Unix seconds."""

    id: str
    name: str
    selector: PolicySelector
    rules: tuple[PolicyRule, ...]
    created_at: float
    updated_at: float


POLICIES = Bucket("network_policies", PolicyRecord)  # app/id
