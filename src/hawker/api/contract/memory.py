"""Bodies about the memory of a running machine. All in MiB, which the Machines API calls MB."""

from hawker.api.contract.body import Answer, Request
from hawker.api.contract.machine import MachineParams
from hawker.api.route import Tag, Unary
from hawker.errors import Conflict, DeadlineExceeded, LeaseHeld, NotFound, NotServed, WrongState


class MemoryAnswer(Answer, frozen=True, kw_only=True):
    """What is enforced now, and how much of it the machine could still use; caches count as usable."""

    limit_mb: int
    available_mb: int


class SetMemoryRequest(Request, frozen=True, kw_only=True):
    limit_mb: int


class ReclaimRequest(Request, frozen=True, kw_only=True):
    amount_mb: int


class ReclaimAnswer(Answer, frozen=True, kw_only=True):
    """How much less the machine uses for it."""

    actual_mb: int


# Calls about the memory of a running machine.

_PATH = "/v1/apps/{app_name}/machines/{machine_id}/memory"

GET_MEMORY = Unary(
    name="get_memory",
    method="GET",
    path=_PATH,
    params=MachineParams,
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
    body=ReclaimRequest,
    response=ReclaimAnswer,
    tag=Tag.MACHINES,
    summary="Reclaim the caches of a running machine",
    errors=(NotFound, LeaseHeld, WrongState, NotServed),
    timeout_s=60.0,
)

MEMORY_ROUTES = (GET_MEMORY, SET_MEMORY, RECLAIM_MEMORY)
