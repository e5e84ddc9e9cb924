"""Bodies about the network policies of an app."""

from datetime import datetime
from types import NoneType
from typing import Literal

import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Answer, Request
from hawker.api.route import Tag, Unary
from hawker.errors import Fault, NotFound
from hawker.permission import Action
from hawker.policy import Direction, Transport


class PolicyMachine(Request, frozen=True, kw_only=True):
    id: str
    """The id of a machine of the app."""


class Selector(Request, frozen=True, kw_only=True):
    """The machines that a policy is for; exactly one of the fields is given. `metadata` selects machines that have all
    of these pairs."""

    all: bool | None = None
    """True selects every machine of the app."""
    machines: tuple[PolicyMachine, ...] | None = None
    metadata: dict[str, str] | None = None


class PolicyPort(Request, frozen=True, kw_only=True):
    """A port that a rule allows, 1 to 65535; without `port`, every port of the protocol."""

    protocol: Transport
    port: int | None = None


class Rule(Request, frozen=True, kw_only=True):
    """What the policy allows in one direction: these ports; without `ports` everything, with an empty list nothing."""

    action: Literal["allow"]
    direction: Direction
    ports: tuple[PolicyPort, ...] | None = None


class NetworkPolicyRequest(Request, frozen=True, kw_only=True):
    """A new network policy; with the `id` of one that is there, that one gets this content."""

    id: str | None = None
    name: str
    """The policy's name, for people; policies are told apart by their ids."""
    selector: Selector
    allowed: tuple[Rule, ...] = msgspec.field(name="rules")


class NetworkPolicy(Answer, frozen=True, kw_only=True):
    id: str
    """The policy's id, unique in the app; it stays when the policy is changed."""
    name: str
    """The policy's name, for people."""
    selector: Selector
    allowed: tuple[Rule, ...] = msgspec.field(name="rules")
    created_at: datetime
    updated_at: datetime


# Calls about the network policies of an app. They are documented and not in the API's own document.


class PolicyParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    """The name of the app that has the policy."""
    policy_id: str
    """The policy's id, as its creation answered it."""


LIST_POLICIES = Unary(
    name="list_policies",
    method="GET",
    path="/v1/apps/{app_name}/network_policies",
    params=AppParams,
    response=tuple[NetworkPolicy, ...],
    tag=Tag.APPS,
    summary="List an app's network policies",
    errors=(NotFound,),
)

PUT_POLICY = Unary(
    name="put_policy",
    method="POST",
    path="/v1/apps/{app_name}/network_policies",
    params=AppParams,
    body=NetworkPolicyRequest,
    response=NetworkPolicy,
    tag=Tag.APPS,
    summary="Create a network policy, or replace one",
    errors=(NotFound, Fault),
    strict=True,
)

GET_POLICY = Unary(
    name="get_policy",
    method="GET",
    path="/v1/apps/{app_name}/network_policies/{policy_id}",
    params=PolicyParams,
    response=NetworkPolicy,
    tag=Tag.APPS,
    summary="Show a network policy",
    errors=(NotFound,),
)

DELETE_POLICY = Unary(
    name="delete_policy",
    method="DELETE",
    path="/v1/apps/{app_name}/network_policies/{policy_id}",
    params=PolicyParams,
    response=NoneType,
    tag=Tag.APPS,
    summary="Remove a network policy",
    errors=(NotFound, Fault),
    action=Action.WRITE,
)

POLICY_ROUTES = (LIST_POLICIES, PUT_POLICY, GET_POLICY, DELETE_POLICY)
