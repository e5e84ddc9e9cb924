"""Bodies about leases. An answer is the envelope that flyctl reads, and has the official document's flat fields too."""

from hawker.api.bodies.body import Answer, Ok, Request


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
