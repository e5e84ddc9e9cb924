"""Bodies about leases. An answer is the envelope that flyctl reads, and has the official document's flat fields too."""

import msgspec

from hawker.api.bounds import Seconds
from hawker.api.contract.body import Answer, Ok, Request
from hawker.api.contract.machine import MachineParams
from hawker.api.route import Tag, Unary
from hawker.errors import LeaseHeld, NotFound
from hawker.permission import Action


class LeaseRequest(Request, frozen=True, kw_only=True):
    """`ttl` in seconds; also accepted as a query parameter, without a body."""

    ttl: int | None = None
    description: str | None = None


class LeaseData(Answer, frozen=True, kw_only=True):
    """`expires_at` is Unix seconds; `version` the machine's current version."""

    nonce: str
    expires_at: int
    owner: str
    description: str
    version: str


class LeaseAnswer(Answer, frozen=True, kw_only=True):
    status: str
    data: LeaseData
    nonce: str
    expires_at: int
    owner: str
    description: str
    version: str


class LeaseReleased(Answer, frozen=True, kw_only=True):
    status: str
    data: Ok


def lease_answer(data: LeaseData) -> LeaseAnswer:
    return LeaseAnswer(
        status="success",
        data=data,
        nonce=data.nonce,
        expires_at=data.expires_at,
        owner=data.owner,
        description=data.description,
        version=data.version,
    )


def lease_released() -> LeaseReleased:
    return LeaseReleased(status="success", data=Ok(ok=True))


# Calls about leases: a client's exclusive right to change a machine.


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
