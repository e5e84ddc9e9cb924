"""A connection to a port of a machine through the API: TCP over a WebSocket, for who cannot reach its network.

The client sends `PortRequest`; the node answers `PortOpened` once the machine took the connection. Then either end
sends any `PortData`, `PortTaken` for what it has passed on, and `PortEnd` when it has no more: the other direction goes
on. An end that goes without `PortEnd` was cut off, which is a reset for whoever is at the other end.
"""

from typing import Annotated, Any, TypeAlias, cast

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.contract.machine import MachineParams
from hawker.api.route import NoQuery, Socket, Tag
from hawker.errors import NotFound, OverShare, Unavailable, WrongState
from hawker.permission import Action


class PortRequest(Request, frozen=True, kw_only=True):
    """`port` is the machine's own, where a program in it listens."""

    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class PortOpened(Answer, frozen=True, kw_only=True, tag_field="type", tag="opened"):
    """`address` is the machine's, at which the port took the connection."""

    address: str


class PortData(Request, frozen=True, kw_only=True, tag_field="type", tag="data"):
    """At most 64 KiB where Hawker sends it."""

    data: bytes


class PortEnd(Request, frozen=True, kw_only=True, tag_field="type", tag="end"):
    """Nothing more comes from this end."""


class PortTaken(Request, frozen=True, kw_only=True, tag_field="type", tag="taken"):
    """So many bytes of data were passed on here. An end has at most 256 KiB under way that are not taken."""

    count: Annotated[int, msgspec.Meta(ge=0)]


FromClient: TypeAlias = PortData | PortEnd | PortTaken
FromPort: TypeAlias = PortOpened | PortData | PortEnd | PortTaken

MACHINE_PORT: Socket[MachineParams, NoQuery, PortRequest, FromPort, FromClient] = Socket(
    name="machine_port",
    method="GET",
    path="/hawker/v1/apps/{app_name}/machines/{machine_id}/port",
    params=MachineParams,
    body=PortRequest,
    response=cast(Any, FromPort),  # a union is no `type[...]` to mypy
    tag=Tag.MACHINES,
    summary="Connect to a TCP port of a machine",
    errors=(NotFound, WrongState, OverShare, Unavailable),
    action=Action.CONTROL,
    up=cast(Any, FromClient),
)

MACHINE_PORT_ROUTES = (MACHINE_PORT,)
