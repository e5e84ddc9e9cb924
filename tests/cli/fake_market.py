"""A fake node whose broker asks three nodes, and fills as many as it is told."""

from typing import Any

import msgspec

from hawker.api.contract.body import Problem
from hawker.api.contract.machine import Machine
from hawker.api.contract.market import BidPart, BidShown, PlaceAnswer, PlaceRequest, Verdict
from hawker.api.route import Call
from tests.cli.fake_node import FakeNode, machine

BEST = BidShown(
    node="000000a1",
    region="mad",
    verdict=Verdict.BEST,
    why="the best bid",
    score=0.91,
    fits=4,
    parts=(
        BidPart(name="cpu", value=0.25, utility=0.93, weight=1.0, points=0.31),
        BidPart(name="image", value=64.0, utility=0.6, weight=0.5, points=0.1),
        BidPart(name="spread", value=2.0, utility=0.6, weight=0.5, points=0.1),
    ),
)
FULL = BidShown(node="000000a2", region="mad", verdict=Verdict.DECLINES, why="short of 256 MiB of memory")
PASSED = BidShown(node="000000a3", region="mad", verdict=Verdict.NOT_ASKED, why="the node is cordoned")


class FakeMarket(FakeNode):
    """`room` machines are filled at the most."""

    room = 100

    async def _place(self, call: Call[Any, Any, PlaceRequest]) -> PlaceAnswer:
        body = call.body
        asked = body.count or 1
        filled = min(asked, self.room)
        refusal = None if filled == asked else Problem(error="no host has room", status="insufficient_capacity")
        made = () if body.dry_run else tuple(self._made(body, index) for index in range(filled))
        return PlaceAnswer(
            order_id="01O", asked=asked, filled=filled, machines=made, bids=(BEST, FULL, PASSED), refusal=refusal
        )

    def _made(self, body: PlaceRequest, index: int) -> Machine:
        state, events = self.fate
        made = machine(f"3d8f000000000{index}", state=state, events=events, config=body.machine.config)
        self.add(body.app, made)
        return msgspec.structs.replace(made)
