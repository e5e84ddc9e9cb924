"""Calls about the memory of a running machine."""

from types import NoneType

from hawker.api.bodies import MemoryAnswer, ReclaimAnswer, ReclaimRequest, SetMemoryRequest
from hawker.api.route import NoQuery, Tag, Unary
from hawker.api.routes.machines import MachineParams
from hawker.errors import Conflict, DeadlineExceeded, LeaseHeld, NotFound, NotServed, WrongState

_PATH = "/v1/apps/{app_name}/machines/{machine_id}/memory"

GET_MEMORY = Unary(
    name="get_memory",
    method="GET",
    path=_PATH,
    params=MachineParams,
    query=NoQuery,
    body=NoneType,
    response=MemoryAnswer,
    tag=Tag.MACHINES,
    summary="Show the memory of a running machine",
    errors=(NotFound, WrongState, NotServed),
)

SET_MEMORY = Unary(
    name="set_memory",
    method="PUT",
    path=_PATH,
    params=MachineParams,
    query=NoQuery,
    body=SetMemoryRequest,
    response=MemoryAnswer,
    tag=Tag.MACHINES,
    summary="Change the memory of a running machine until its next start",
    errors=(NotFound, Conflict, LeaseHeld, WrongState, DeadlineExceeded, NotServed),
    timeout_s=60.0,
)

RECLAIM_MEMORY = Unary(
    name="reclaim_memory",
    method="POST",
    path=f"{_PATH}/reclaim",
    params=MachineParams,
    query=NoQuery,
    body=ReclaimRequest,
    response=ReclaimAnswer,
    tag=Tag.MACHINES,
    summary="Reclaim the caches of a running machine",
    errors=(NotFound, LeaseHeld, WrongState, NotServed),
    timeout_s=60.0,
)

MEMORY_ROUTES = (GET_MEMORY, SET_MEMORY, RECLAIM_MEMORY)
