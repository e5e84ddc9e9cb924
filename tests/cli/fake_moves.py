"""The moves of the fake node."""

from typing import Any

import msgspec

from hawker.api.contract.move import Move, MoveList
from hawker.api.route import Call
from hawker.errors import HawkerError, NotFound
from tests.cli.fake_addresses import AT

MOVE = Move(
    id="01MOVE",
    app="shop",
    machine="3d8f0000000001",
    volume="vol_0000000000000001",
    node="0a1b2c3d",
    to="4e5f6071",
    state="copying",
    generation=2,
    stored_bytes=4 << 30,
    copied_bytes=1 << 30,
    rate=200 << 20,
    eta_s=15.0,
    away_ms=5200,
    created_at=AT,
    updated_at=AT,
)


class FakeMoves:
    """`moves` are listed; one that is asked for becomes what `ends` says, or what `ends_lossy` does if it was ordered
    with losses. The first orders meet each of `in_the_way`: one is refused so, or ends aborted for that reason."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: tuple[Move, ...] = ()
        self.ends: dict[str, Any] = {"state": "done", "copied_bytes": 4 << 30}
        self.ends_lossy: dict[str, Any] | None = None
        self.in_the_way: list[HawkerError | str] = []
        self._lossy = False
        self._aborts = ""

    async def _move_machine(self, call: Call[Any, Any, Any]) -> Move:
        met = self.in_the_way.pop(0) if self.in_the_way else ""
        if isinstance(met, HawkerError):
            raise met
        self._aborts = met
        self._lossy = bool(call.body.accept_loss)
        later = {"state": "scheduled", "at": call.body.at or AT, "window": call.body.window}
        return msgspec.structs.replace(
            MOVE, machine=call.params.machine_id, **(later if call.body.at or call.body.window else {})
        )

    async def _move_volume_to_node(self, call: Call[Any, Any, Any]) -> Move:
        self._lossy = bool(call.body.accept_loss)
        return msgspec.structs.replace(MOVE, machine=None, volume=call.params.volume_id)

    async def _list_moves(self, call: Call[Any, Any, Any]) -> MoveList:
        return MoveList(moves=self.moves)

    async def _get_move(self, call: Call[Any, Any, Any]) -> Move:
        if call.params.move_id != MOVE.id:
            raise NotFound("move not found")
        if self._aborts:
            return msgspec.structs.replace(MOVE, state="aborted", reason=self._aborts)
        ends = self.ends_lossy if self._lossy and self.ends_lossy is not None else self.ends
        return msgspec.structs.replace(MOVE, **ends)

    async def _cancel_move(self, call: Call[Any, Any, Any]) -> Move:
        done = next((move for move in self.moves if move.state == "done"), None)  # a node tells it as it is
        return done or msgspec.structs.replace(MOVE, state="aborted", reason="cancelled by the user")

    async def _reclaim_move(self, call: Call[Any, Any, Any]) -> Move:
        return msgspec.structs.replace(MOVE, id=call.params.move_id, state="reclaiming")

    async def _pause_move(self, call: Call[Any, Any, Any]) -> Move:
        return msgspec.structs.replace(MOVE, paused=True, eta_s=None)

    async def _resume_move(self, call: Call[Any, Any, Any]) -> Move:
        return MOVE

    async def _limit_move(self, call: Call[Any, Any, Any]) -> Move:
        return MOVE
