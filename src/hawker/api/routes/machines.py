"""Calls that create, show, change and destroy machines."""

from types import NoneType

import msgspec

from hawker.api.bodies import CreateMachineRequest, Machine, MachineEvent, MachineVersion, Ok, UpdateMachineRequest
from hawker.api.bounds import EventsLimit, PageLimit
from hawker.api.rate import Rate
from hawker.api.route import NoQuery, Page, Tag, Unary
from hawker.api.routes.apps import AppParams
from hawker.errors import AlreadyExists, Conflict, LeaseHeld, NoRoom, NotFound, OrderUncertain, Unavailable, WrongState
from hawker.machine import State
from hawker.permission import Action


class MachineParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    machine_id: str


class ListMachinesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`metadata.KEY=VALUE` selects by metadata; a `summary` leaves out config, events and checks. Without a `limit` the
    whole list is answered."""

    include_deleted: bool = False
    region: str | None = None
    state: tuple[State, ...] = ()
    summary: bool = False
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    include_leases: bool = False
    limit: PageLimit | None = None
    cursor: str | None = None


class GetMachineQuery(msgspec.Struct, frozen=True, kw_only=True):
    """An old `version` is shown as replaced."""

    version: str | None = None
    include_leases: bool = False


class DeleteMachineQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Either one ends a running machine first; `kill` is flyctl's word for `force`."""

    force: bool = False
    kill: bool = False


class ListEventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`limit` is at most 50."""

    limit: EventsLimit = 20


LIST_MACHINES = Unary(
    name="list_machines",
    method="GET",
    path="/v1/apps/{app_name}/machines",
    params=AppParams,
    query=ListMachinesQuery,
    body=NoneType,
    response=Page[Machine],
    tag=Tag.MACHINES,
    summary="List an app's machines",
    errors=(NotFound,),
)

CREATE_MACHINE = Unary(
    name="create_machine",
    method="POST",
    path="/v1/apps/{app_name}/machines",
    params=AppParams,
    query=NoQuery,
    body=CreateMachineRequest,
    response=Machine,
    tag=Tag.MACHINES,
    summary="Order a machine: it is created and starts, or the order is refused",
    errors=(NotFound, AlreadyExists, NoRoom, OrderUncertain, Unavailable),
    action=Action.CREATE,
    strict=True,
    keyed=True,
    timeout_s=90.0,
)

GET_MACHINE = Unary(
    name="get_machine",
    method="GET",
    path="/v1/apps/{app_name}/machines/{machine_id}",
    params=MachineParams,
    query=GetMachineQuery,
    body=NoneType,
    response=Machine,
    tag=Tag.MACHINES,
    summary="Show a machine",
    errors=(NotFound,),
    rate=Rate.LOOK,
)

UPDATE_MACHINE = Unary(
    name="update_machine",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}",
    params=MachineParams,
    query=NoQuery,
    body=UpdateMachineRequest,
    response=Machine,
    tag=Tag.MACHINES,
    summary="Update a machine's config, which makes a new version and restarts it",
    errors=(NotFound, Conflict, LeaseHeld, WrongState, NoRoom, Unavailable),
    strict=True,
    timeout_s=90.0,
)

DELETE_MACHINE = Unary(
    name="delete_machine",
    method="DELETE",
    path="/v1/apps/{app_name}/machines/{machine_id}",
    params=MachineParams,
    query=DeleteMachineQuery,
    body=NoneType,
    response=Ok,
    tag=Tag.MACHINES,
    summary="Destroy a machine",
    errors=(NotFound, Conflict, LeaseHeld, WrongState),
    timeout_s=90.0,
)

LIST_EVENTS = Unary(
    name="list_events",
    method="GET",
    path="/v1/apps/{app_name}/machines/{machine_id}/events",
    params=MachineParams,
    query=ListEventsQuery,
    body=NoneType,
    response=tuple[MachineEvent, ...],
    tag=Tag.MACHINES,
    summary="List what happened to a machine, newest first",
    errors=(NotFound,),
)

LIST_VERSIONS = Unary(
    name="list_versions",
    method="GET",
    path="/v1/apps/{app_name}/machines/{machine_id}/versions",
    params=MachineParams,
    query=NoQuery,
    body=NoneType,
    response=tuple[MachineVersion, ...],
    tag=Tag.MACHINES,
    summary="List the versions of a machine's config, newest first",
    errors=(NotFound,),
)

MACHINE_ROUTES = (
    LIST_MACHINES,
    CREATE_MACHINE,
    GET_MACHINE,
    UPDATE_MACHINE,
    DELETE_MACHINE,
    LIST_EVENTS,
    LIST_VERSIONS,
)
