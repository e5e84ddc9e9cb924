"""Bodies of what nodes of different regions tell each other of names in private networks."""

from typing import Annotated

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.route import NoParams, Tag, Unary

MOST_NETWORKS, MOST_MACHINES = 1_000, 5_000


class PrivateNamesRequest(Request, frozen=True, kw_only=True):
    """The 32 bits of each network that is asked about."""

    networks: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)], ...], msgspec.Meta(max_length=1_000)]


class PrivateName(Answer, frozen=True, kw_only=True):
    """A machine of one of them; `ip` is its private address, `name` what it is called, empty from an older node."""

    id: str
    app: str
    ip: str
    node: str
    started: bool
    metadata: dict[str, str]
    name: str = ""


class PrivateNames(Answer, frozen=True, kw_only=True):
    """Machines on living nodes of `region`, which is the answering node's, as its catalog has them."""

    region: str
    machines: tuple[PrivateName, ...]


LIST_PRIVATE_NAMES = Unary(
    name="list_private_names",
    method="POST",
    path="/internal/v1/private-names",
    params=NoParams,
    body=PrivateNamesRequest,
    response=PrivateNames,
    tag=Tag.NODE,
    summary="List machines of private networks in this node's region",
    timeout_s=2.0,
)
