"""Calls about leases: a client's exclusive right to change a machine."""

from types import NoneType

import msgspec

from hawker.api.bodies import LeaseAnswer, LeaseReleased, LeaseRequest
from hawker.api.bounds import Seconds
from hawker.api.route import NoQuery, Tag, Unary
from hawker.api.routes.machines import MachineParams
from hawker.errors import LeaseHeld, NotFound
from hawker.permission import Action


class LeaseQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Another way to say what the body says."""

    ttl: Seconds | None = None


CREATE_LEASE = Unary(
    name="create_lease",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}/lease",
    params=MachineParams,
    query=LeaseQuery,
    body=LeaseRequest,
    response=LeaseAnswer,
    tag=Tag.LEASES,
    summary="Acquire a machine's lease, or extend it with its nonce",
    status=201,
    errors=(NotFound, LeaseHeld),
    body_optional=True,
)

GET_LEASE = Unary(
    name="get_lease",
    method="GET",
    path="/v1/apps/{app_name}/machines/{machine_id}/lease",
    params=MachineParams,
    query=NoQuery,
    body=NoneType,
    response=LeaseAnswer,
    tag=Tag.LEASES,
    summary="Show a machine's lease",
    errors=(NotFound,),
)

RELEASE_LEASE = Unary(
    name="release_lease",
    method="DELETE",
    path="/v1/apps/{app_name}/machines/{machine_id}/lease",
    params=MachineParams,
    query=NoQuery,
    body=NoneType,
    response=LeaseReleased,
    tag=Tag.LEASES,
    summary="Release a machine's lease",
    errors=(NotFound, LeaseHeld),
    action=Action.WRITE,
)

LEASE_ROUTES = (
    CREATE_LEASE,
    GET_LEASE,
    RELEASE_LEASE,
)
