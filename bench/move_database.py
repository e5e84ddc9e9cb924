"""What a warm move costs a database: PostgreSQL under pgbench in a machine, transactions a second before, while its
volume is copied, and after, and how long no transaction was acknowledged. Three real nodes on hosts of their own, the
client outside, through `hawker proxy`.

    python bench/move_database.py [SCALE OF PGBENCH] [MOVES]
"""

import sys
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from hawker.api.contract.machine import Machine
from hawker.api.contract.move import MOVE_MACHINE, Move, MoveRequest
from hawker.chaos.moves.blow import MoveTrialPlan
from hawker.chaos.moves.move_trial import MoveTrial, write_layout_of
from hawker.chaos.moves.moving_machine import MovingMachine, brokered, lab_fleet
from hawker.chaos.moves.writers import DatabaseWriter
from hawker.clock import SystemClock
from hawker.record.move import MoveState

QUIET_S = 15.0


class MeasuredMoves(MoveTrial):
    """Moves that nobody hurts."""

    moves = 2

    async def _blows(self, machine: Machine) -> None:
        for _ in range(self.moves):
            await self._clock.sleep(QUIET_S)
            _, destination = self._moving.ends()
            self._writer.forget()
            wish = MoveRequest(to=destination.id, mode="warm")
            made = await self._moving.broker.call(MOVE_MACHINE, params=self._moving.params, body=wish)
            known = {each.id for each in await self._moving.patiently(self._moving.all_moves)} - {made.id}
            (move,) = await self._moving.at_rest(known)
            assert move.state == MoveState.DONE, move
            await self._clock.sleep(QUIET_S)
            self._tell_of(move)
            self.findings += await self._writer.broken(self._port)

    def _tell_of(self, move: Move) -> None:
        assert isinstance(self._writer, DatabaseWriter)
        began, away_s = move.created_at.timestamp(), (move.away_ms or 0) / 1000
        moments = sorted(self._writer.moments)
        gaps = [(later - earlier, earlier) for earlier, later in pairwise(moments)]
        longest, stopped = max(gap for gap in gaps if gap[1] > began - 1)
        rates = [
            _rate(moments, began - QUIET_S, began),
            _rate(moments, began, stopped),
            _rate(moments, stopped + longest, stopped + longest + QUIET_S - 3),
        ]
        print(
            f"{move.stored_bytes >> 20} MiB stored, copied in {stopped - began:.1f} s: {rates[0]:.0f} transactions a"
            f" second before, {rates[1]:.0f} during, {rates[2]:.0f} after; none acknowledged for {longest:.2f} s,"
            f" machine away {away_s:.2f} s",
            flush=True,
        )


def _rate(moments: list[float], begin: float, end: float) -> float:
    return sum(begin <= at < end for at in moments) / max(0.1, end - begin)


async def measure(place: Path, scale: int, moves: int) -> None:
    clock = SystemClock()
    writer = DatabaseWriter(clock, place / "pgbench", scale)
    await anyio.to_thread.run_sync(write_layout_of, writer, place)
    with lab_fleet(place, clock) as fleet:
        async with brokered(fleet) as broker:
            reference = f"oci:{place / 'image'}"
            moving = MovingMachine(clock, fleet, broker)
            trial = MeasuredMoves(MoveTrialPlan(), clock, lambda row: None, print, moving, writer, reference)
            trial.moves = moves
            await trial.run()
    print("\n".join(trial.findings) or "sums agree, amcheck clean, nothing acknowledged is lost")


def main(scale: int, moves: int) -> None:
    with TemporaryDirectory(prefix="hawker-bench-") as place:
        anyio.run(measure, Path(place), scale, moves)


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(*given, *(10, 2)[len(given) :])
