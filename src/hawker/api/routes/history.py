"""The call for a machine's whole history, wherever it is kept."""

from types import NoneType

import msgspec

from hawker.api.bodies import MachineHistory
from hawker.api.route import NoQuery, Tag, Unary
from hawker.errors import Fault, NotFound, Unavailable


class HistoryParams(msgspec.Struct, frozen=True, kw_only=True):
    """By the machine's whole id alone: its app may be gone."""

    machine_id: str


MACHINE_HISTORY = Unary(
    name="machine_history",
    method="GET",
    path="/hawker/v1/machines/{machine_id}/history",
    params=HistoryParams,
    query=NoQuery,
    body=NoneType,
    response=MachineHistory,
    tag=Tag.MACHINES,
    summary="Show a machine's whole history, also from the archive",
    errors=(NotFound, Unavailable, Fault),
    guarded=False,  # whose machine it was is in the history
    timeout_s=90.0,
)

HISTORY_ROUTES = (MACHINE_HISTORY,)
