"""Calls about the network policies of an app. They are documented and not in the API's own document."""

from types import NoneType

import msgspec

from hawker.api.bodies import NetworkPolicy, NetworkPolicyRequest
from hawker.api.route import NoQuery, Tag, Unary
from hawker.api.routes.apps import AppParams
from hawker.errors import Fault, NotFound
from hawker.permission import Action


class PolicyParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    policy_id: str


LIST_POLICIES = Unary(
    name="list_policies",
    method="GET",
    path="/v1/apps/{app_name}/network_policies",
    params=AppParams,
    query=NoQuery,
    body=NoneType,
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
    query=NoQuery,
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
    query=NoQuery,
    body=NoneType,
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
    query=NoQuery,
    body=NoneType,
    response=NoneType,
    tag=Tag.APPS,
    summary="Remove a network policy",
    errors=(NotFound, Fault),
    action=Action.WRITE,
)

POLICY_ROUTES = (LIST_POLICIES, PUT_POLICY, GET_POLICY, DELETE_POLICY)
