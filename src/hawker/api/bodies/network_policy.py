"""Bodies about the network policies of an app."""

from datetime import datetime
from typing import Literal

import msgspec

from hawker.api.bodies.body import Answer, Request
from hawker.policy import Direction, Transport


class PolicyMachine(Request, frozen=True, kw_only=True):
    id: str


class Selector(Request, frozen=True, kw_only=True):
    """Exactly one of them. `metadata` selects machines that have all of these pairs."""

    all: bool | None = None
    machines: tuple[PolicyMachine, ...] | None = None
    metadata: dict[str, str] | None = None


class PolicyPort(Request, frozen=True, kw_only=True):
    """Without `port`, every port of the protocol."""

    protocol: Transport
    port: int | None = None


class Rule(Request, frozen=True, kw_only=True):
    """Without `ports` everything is allowed in that direction, with an empty list nothing."""

    action: Literal["allow"]
    direction: Direction
    ports: tuple[PolicyPort, ...] | None = None


class NetworkPolicyRequest(Request, frozen=True, kw_only=True):
    """With an `id`, the policy that there is gets this content."""

    id: str | None = None
    name: str
    selector: Selector
    allowed: tuple[Rule, ...] = msgspec.field(name="rules")


class NetworkPolicy(Answer, frozen=True, kw_only=True):
    id: str
    name: str
    selector: Selector
    allowed: tuple[Rule, ...] = msgspec.field(name="rules")
    created_at: datetime
    updated_at: datetime
