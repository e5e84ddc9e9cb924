"""What must hold of a real node's machines once a crash has been survived, as its API and its host show it."""

import os
from collections.abc import Iterable
from pathlib import Path

from hawker.api.contract.machine import Machine, MachineEvent
from tests.e2e.running_node import RunningNode
from tests.e2e.shop import Shop
from tests.waiting import eventually

OFF = frozenset({"stopped", "failed", "destroyed"})


def pilots(machine_id: str) -> list[int]:
    """Process 1 of each instance of the machine that is on this host. A child at its exec has its name, too."""
    found = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_pilot_of(pid, machine_id)]
    return [pid for pid in found if _parent_of(pid) not in found]


def _is_pilot_of(pid: int, machine_id: str) -> bool:
    folder = Path(f"/proc/{pid}")
    try:
        ended = (folder / "stat").read_text().rpartition(") ")[2][0] == "Z"  # it only waits to be read
        return (
            not ended and (folder / "comm").read_text() == "pilot\n" and machine_id in (folder / "cgroup").read_text()
        )
    except OSError:
        return False


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return 0


def check_history(events: Iterable[MachineEvent]) -> bool:
    """Every instance that started ended at most once, and before the next one started. Whether one runs."""
    runs, last = False, ""
    for event in events:
        assert event.id > last, "events are in order"
        last = event.id
        if event.type == "exit":
            assert event.request is not None
            assert runs or event.request.exit_event.reason, f"an exit of nothing: {event}"
            runs = False
        elif event.status == "started":
            assert not runs, f"started twice: {event}"
            runs = True
    return runs


async def check_machine(shop: Shop, machine_id: str) -> Machine:
    """One instance if it runs by its state, none if not; its history agrees."""
    machine = await shop.get(machine_id)
    runs = check_history(await shop.events(machine_id))
    assert runs == (machine.state == "started"), machine
    assert len(pilots(machine_id)) == int(runs), machine
    return machine


async def settled(shop: Shop, machine_id: str) -> None:
    """Once no run of the machine is open."""

    async def all_ended() -> bool:
        return all(run.ended_at is not None for run in await shop.runs(machine_id))

    await eventually(all_ended)


async def check_host(shop: Shop, node: RunningNode) -> None:
    """What the node has on disk belongs to machines that are there. Directories of destroyed ones go a little later."""
    known = {machine.id for machine in await shop.machines()}
    await eventually(lambda: set(os.listdir(node.data_dir / "machines")) <= known)
    await eventually(lambda: set(os.listdir(node.data_dir / "netns")) <= known)
