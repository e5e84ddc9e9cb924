"""Moving machines away from a node: what is moved and how, what stays and why, and beginning again."""

from typing import Any

import msgspec
import pytest

from hawker.api.contract.machine import CheckStatus, LeaseInfo, Machine
from hawker.api.in_process import InProcessCaller
from hawker.cli.draining import Drained, Left, Mover, Resident, copy_of, data_of, name_of_copy, order_id, stays
from hawker.clock import ManualClock
from hawker.config import MachineConfig
from hawker.config.machine import Mount, RootfsConfig
from hawker.errors import Conflict, HawkerError, LeaseHeld, NoRoom, Unavailable, WrongState
from hawker.ids import NodeId
from hawker.machine import State
from hawker.record.move import BUSY
from tests.cli.fake_node import AT, FakeNode, exit_event, machine

pytestmark = pytest.mark.anyio

SPARE = MachineConfig(image="web", standbys=("3d8f0000000001",))
NODE = NodeId("aaaaaaaa")
FIRST, SECOND = "3d8f0000000001", "3d8f0000000002"
MEMORY_STAYS = "its memory is at this node: move it with `--cold-start`"
LEASE = LeaseInfo(description="", expires_at=1, owner="ann")
WITH_VOLUME = MachineConfig(image="web", mounts=(Mount(volume="vol_0000000000000000", path="/data"),))


class PassingClock(ManualClock):
    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


class Drain:
    """A node, and what was said while it was drained."""

    def __init__(
        self, node: FakeNode, *, keep: bool = False, said: list[str] | None = None, cold_start: bool = False
    ) -> None:
        self.node = node
        self.said: list[str] = [] if said is None else said
        caller = InProcessCaller(node.handlers(), ManualClock(), "tester")
        self.mover = Mover(
            caller, PassingClock(), NODE, self.said.append, within_s=30.0, keep=keep, cold_start=cold_start
        )

    async def of(self, *machine_ids: str) -> list[Drained]:
        return await self.mover.move_all([Resident(app="shop", machine_id=each) for each in machine_ids])

    def state(self, machine_id: str) -> State:
        return self.node.apps["shop"][machine_id].state


def node_with(*machines: Machine) -> FakeNode:
    node = FakeNode()
    node.add("shop", *machines)
    return node


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, None),
        ({"state": State.STOPPED}, None),
        ({"state": State.CREATED}, None),
        ({"state": State.SUSPENDED}, None),
        ({"state": State.SUSPENDED, "lease": LEASE}, Left.LEASED),
        ({"state": State.UPDATING}, Left.BUSY),
        ({"state": State.DESTROYING}, Left.GONE),
        ({"lease": LEASE}, Left.LEASED),
        ({"config": WITH_VOLUME}, None),
    ],
)
def test_machines_that_can_be_moved(fields: dict[str, Any], why: Left | None) -> None:
    assert stays(machine(FIRST, **fields)) is why


@pytest.mark.parametrize(
    ("config", "goes_along"),
    [
        (MachineConfig(image="web"), ""),
        (MachineConfig(image="web", rootfs=RootfsConfig(persist="never")), ""),
        (WITH_VOLUME, "its volume"),
        (MachineConfig(image="web", rootfs=RootfsConfig(persist="restart")), "its root filesystem"),
        (
            msgspec.structs.replace(WITH_VOLUME, rootfs=RootfsConfig(persist="always")),
            "its volume and its root filesystem",
        ),
    ],
)
def test_a_machine_that_keeps_anything_moves_with_it_and_no_other(config: MachineConfig, goes_along: str) -> None:
    assert data_of(machine(FIRST, config=config)) == goes_along


def test_a_machine_with_a_volume_stays_if_that_is_wanted() -> None:
    assert stays(machine(FIRST, config=WITH_VOLUME), keep_volumes=True) is Left.VOLUMES
    assert stays(machine(FIRST), keep_volumes=True) is None


def test_a_copy_is_the_same_machine_elsewhere_in_its_region() -> None:
    whole = machine(FIRST, region="mad", cordoned=True)
    order = copy_of(whole)
    assert (order.name, order.region, order.skip_launch, order.skip_service_registration) == (
        "name-1-m3d8f", "mad", None, True,
    )  # fmt: skip
    assert order.config.metadata == {"hawker_moved_from": FIRST}
    assert msgspec.structs.replace(order.config, metadata=None) == whole.config
    assert copy_of(machine(FIRST, state=State.STOPPED)).skip_launch


@pytest.mark.parametrize(
    ("name", "copy"), [("web", "web-m3d8f"), ("web-m0c21", "web-m3d8f"), ("w" * 63, "w" * 57 + "-m3d8f")]
)
def test_a_copy_has_a_name_of_its_own(name: str, copy: str) -> None:
    assert name_of_copy(machine(FIRST, name=name)) == copy


async def test_a_started_machine_goes_once_its_copy_runs() -> None:
    drain = Drain(node_with(machine(FIRST)))
    (moved,) = await drain.of(FIRST)
    assert (moved.copy, moved.why) == ("3d8f00000000ff", "")
    assert drain.state(FIRST) is State.DESTROYED
    assert drain.node.call("create_machine").idempotency_key == order_id(NODE, machine(FIRST))
    assert [line.split(": ", 1)[1] for line in drain.said] == [
        f"name-1 ({FIRST}): ordering a copy on another node",
        f"name-1 ({FIRST}): moved, the copy is 3d8f00000000ff",
    ]


async def test_a_machine_that_is_just_starting_is_waited_for() -> None:
    node = node_with(machine(FIRST, state=State.STARTING))

    class Said(list[str]):
        def append(self, text: str) -> None:
            super().append(text)
            if "waiting" in text:
                node.add("shop", machine(FIRST))

    (moved,) = await Drain(node, said=Said()).of(FIRST)
    assert moved.copy and not moved.why


IN_THE_WAY = (
    Conflict("move 01 of app 'shop' is under way: one machine of an app is away at a time"),
    LeaseHeld("machine ID 1 lease currently held by somebody"),
    f"{BUSY}move 02 of machine 1 goes first, and did so for 10 minutes",
)


@pytest.mark.parametrize("met", IN_THE_WAY, ids=["another move", "a lease", "its turn did not come"])
async def test_machine_that_something_is_in_the_way_of_is_moved_once_it_is_gone(met: HawkerError | str) -> None:
    node = node_with(machine(FIRST, config=WITH_VOLUME))
    node.in_the_way = [met, met]
    drain = Drain(node)
    (moved,) = await drain.of(FIRST)
    assert (moved.copy, moved.why) == (FIRST, "")
    assert len(node.calls["move_machine"]) == 3
    assert len([line for line in drain.said if "something else is under way, and it is tried again" in line]) == 1


async def test_machine_that_something_stays_in_the_way_of_stays_and_keeps_nobody_else() -> None:
    node = node_with(machine(FIRST, config=WITH_VOLUME), machine(SECOND))
    node.in_the_way = [IN_THE_WAY[0]] * 1000
    first, second = await Drain(node).of(FIRST, SECOND)
    assert "one machine of an app is away at a time" in first.why and second.copy


async def test_machine_whose_move_is_aborted_for_another_reason_is_not_ordered_again() -> None:
    node = node_with(machine(FIRST, config=WITH_VOLUME))
    node.in_the_way = ["no node can take it"]
    (moved,) = await Drain(node).of(FIRST)
    assert "no node can take it" in moved.why and len(node.calls["move_machine"]) == 1
    assert moved.name == "name-1"


async def test_machine_is_moved_once_its_lease_has_ended() -> None:
    node = node_with(machine(FIRST, lease=LEASE))

    class Said(list[str]):
        def append(self, text: str) -> None:
            super().append(text)
            if "waiting, a client holds its lease" in text:
                node.add("shop", machine(FIRST))

    (moved,) = await Drain(node, said=Said()).of(FIRST)
    assert moved.copy and not moved.why


async def test_a_machine_may_be_kept_where_it_was_stopped() -> None:
    drain = Drain(node_with(machine(FIRST)), keep=True)
    await drain.of(FIRST)
    assert drain.state(FIRST) is State.STOPPED


async def test_a_stopped_machine_is_moved_stopped() -> None:
    node = node_with(machine(FIRST, state=State.STOPPED))
    node.fate = (State.STOPPED, ())
    drain = Drain(node)
    (moved,) = await drain.of(FIRST)
    assert moved.copy and "stop_machine" not in node.calls
    assert drain.state(FIRST) is State.DESTROYED


async def test_a_copy_that_does_not_start_goes_and_the_machine_stays() -> None:
    node = node_with(machine(FIRST))
    node.fate = (State.STOPPED, (exit_event(3),))
    drain = Drain(node)
    (moved,) = await drain.of(FIRST)
    assert "did not start: it exited with status 3" in moved.why
    assert drain.state(FIRST) is State.STARTED
    assert drain.state("3d8f00000000ff") is State.DESTROYED


async def test_a_copy_whose_checks_fail_goes_too() -> None:
    node = node_with(machine(FIRST))
    drain = Drain(node)
    begun = node._create_machine

    async def unhealthy(call: Any) -> Machine:
        made = await begun(call)
        check = CheckStatus(name="web", status="critical", output="refused", updated_at=AT)
        node.add("shop", msgspec.structs.replace(node.apps["shop"][made.id], checks=(check,)))
        return made

    node._create_machine = unhealthy  # type: ignore[method-assign]
    drain = Drain(node)
    (moved,) = await drain.of(FIRST)
    assert "checks of its copy 3d8f00000000ff do not pass after 30 s" in moved.why
    assert (drain.state(FIRST), drain.state("3d8f00000000ff")) == (State.STARTED, State.DESTROYED)


async def test_no_room_for_one_keeps_no_other_from_being_looked_at() -> None:
    node = node_with(machine(FIRST), machine(SECOND, state=State.SUSPENDED))
    node.failures["create_machine"] = NoRoom("no host has room", scope="region", shortfall={"memory_mb": 1})
    node.in_the_way = [WrongState(MEMORY_STAYS)]
    moved = await Drain(node).of(SECOND, FIRST)
    assert [each.why for each in moved] == ["no host has room", f"failed_precondition: {MEMORY_STAYS}"]


async def test_a_suspended_machine_goes_with_its_memory_and_without_it_only_where_it_cannot_and_may() -> None:
    node = node_with(machine(FIRST, state=State.SUSPENDED))
    (moved,) = await Drain(node).of(FIRST)
    assert moved.note == "to node 4e5f6071, where it is suspended"
    for met in (WrongState(MEMORY_STAYS), MEMORY_STAYS):
        node = node_with(machine(FIRST, state=State.SUSPENDED))
        node.in_the_way = [met]
        (moved,) = await Drain(node, cold_start=True).of(FIRST)
        assert moved.note == "to node 4e5f6071, where it is stopped: its memory was dropped"
        assert [each.body.cold_start for each in node.calls["move_machine"]] == [None, True]
    node = node_with(machine(FIRST, state=State.SUSPENDED))
    node.in_the_way = ["no node has room"]
    (moved,) = await Drain(node, cold_start=True).of(FIRST)
    assert moved.why.endswith("no node has room") and not node.call("move_machine").body.cold_start


async def test_one_that_is_gone_meanwhile_is_passed_over() -> None:
    (moved,) = await Drain(node_with(machine(FIRST))).of(SECOND)
    assert moved.why == "it was destroyed meanwhile"


async def test_a_copy_of_an_earlier_drain_that_was_destroyed_is_ordered_anew() -> None:
    node = node_with(machine(FIRST))
    begun = node._create_machine

    async def earlier(call: Any) -> Machine:
        made = await begun(call)
        first = call.idempotency_key == order_id(NODE, machine(FIRST))
        return msgspec.structs.replace(made, state=State.DESTROYED) if first else made

    node._create_machine = earlier  # type: ignore[method-assign]
    (moved,) = await Drain(node).of(FIRST)
    assert moved.copy
    assert [call.idempotency_key for call in node.calls["create_machine"]] == [
        order_id(NODE, machine(FIRST)), order_id(NODE, machine(FIRST), 2),
    ]  # fmt: skip


def spare(machine_id: str, **fields: Any) -> Machine:
    return machine(machine_id, **{"state": State.STOPPED, "config": SPARE, **fields})


async def test_spares_stand_by_for_the_copy_which_is_not_beside_them() -> None:
    drain = Drain(node_with(machine(FIRST), spare(SECOND)))
    (moved,) = await drain.of(FIRST)
    assert (moved.why, moved.note) == ("", "")
    config = drain.node.apps["shop"][SECOND].config
    assert config is not None and config.standbys == ("3d8f00000000ff",)
    assert drain.state(SECOND) is State.STOPPED
    assert drain.node.call("create_machine").body.config.metadata["hawker_apart_from"] == SECOND


async def test_a_spare_that_cannot_be_changed_keeps_the_machine_where_it_is() -> None:
    drain = Drain(node_with(machine(FIRST), spare(SECOND, lease=LEASE)))
    (moved,) = await drain.of(FIRST)
    assert "lease of its spare" in moved.why
    assert drain.state(FIRST) is State.STARTED and "create_machine" not in drain.node.calls


async def test_a_failure_at_a_spare_leaves_machine_and_copy_for_the_next_drain() -> None:
    node = node_with(machine(FIRST), spare(SECOND))
    node.failures["update_machine"] = Unavailable("busy")
    drain = Drain(node)
    (moved,) = await drain.of(FIRST)
    assert moved.why == "its copy 3d8f00000000ff is ready, repeat the drain to continue: busy"
    assert (drain.state(FIRST), drain.state("3d8f00000000ff")) == (State.STARTED, State.STARTED)
    del node.failures["update_machine"]
    (moved,) = await drain.of(FIRST)
    assert moved.why == "" and drain.state(FIRST) is State.DESTROYED


async def test_a_spare_that_is_moved_stays_one() -> None:
    node = node_with(machine(FIRST), spare(SECOND))
    node.fate = (State.STOPPED, ())
    (moved,) = await Drain(node).of(SECOND)
    config = node.apps["shop"][moved.copy].config
    assert config is not None and config.standbys == (FIRST,)


async def test_a_spare_that_runs_for_a_machine_of_a_lost_node_stays_there_to_tell_it() -> None:
    node = node_with(spare(SECOND, state=State.STARTED))
    found = node._get_machine

    async def lost(call: Any) -> Machine:
        if call.params.machine_id == FIRST:
            raise Unavailable("node 0badcafe is down")
        return await found(call)

    node._get_machine = lost  # type: ignore[method-assign]
    (moved,) = await Drain(node).of(SECOND)
    assert f"it has taken over from {FIRST}" in moved.why
    node._get_machine = found  # type: ignore[method-assign]
    (moved,) = await Drain(node).of(SECOND)
    assert moved.copy


async def test_a_drain_that_was_cut_short_after_it_had_stopped_the_machine_keeps_the_copy() -> None:
    node = node_with(machine(FIRST, state=State.STOPPED))
    begun = node._create_machine

    async def there(call: Any) -> Machine:
        made = await begun(call)
        return msgspec.structs.replace(made, state=State.STARTED)

    node._create_machine = there  # type: ignore[method-assign]
    drain = Drain(node)
    (moved,) = await drain.of(FIRST)
    assert moved.copy and moved.why == ""
    assert (drain.state(FIRST), drain.state(moved.copy)) == (State.DESTROYED, State.STARTED)
