"""The ports of the host that a machine publishes."""

from hawker.api.contract.body import Answer
from hawker.api.contract.machine import MachineParams
from hawker.api.route import Tag, Unary
from hawker.errors import NotFound, Unavailable


class PublishedPortState(Answer, frozen=True, kw_only=True):
    """One port of the host. `listening` says that connections to it reach this machine's app; `refused` says why they
    do not, or not yet."""

    address: str
    port: int
    internal_port: int
    handlers: tuple[str, ...] = ()
    listening: bool
    refused: str = ""


LIST_PUBLISHED_PORTS = Unary(
    name="list_published_ports",
    method="GET",
    path="/hawker/v1/apps/{app_name}/machines/{machine_id}/ports",
    params=MachineParams,
    response=tuple[PublishedPortState, ...],
    tag=Tag.MACHINES,
    summary="List the ports of the host that a machine publishes",
    errors=(NotFound, Unavailable),
)

PUBLISHED_PORT_ROUTES = (LIST_PUBLISHED_PORTS,)
