"""What lists say of machines and volumes whose host does not answer."""

import msgspec
import pytest

from hawker.api.contract.machine import ListMachinesQuery
from hawker.api.directory import KnownMachine, KnownVolume, Node
from hawker.gateway.silent_hosts import machine_of, selects, volume_of
from hawker.ids import NodeId
from hawker.machine import State

HOST = Node(id=NodeId("0000000a"), region="mad", alive=False, labels={})


def row(state: str = "started") -> KnownMachine:
    return KnownMachine(
        id="m1",
        name="web",
        state=state,
        version="v1",
        image="sha256:1",
        private_ip="fd00::1",
        cordoned=False,
        metadata={"tier": "front"},
        created_at=1.0,
        updated_at=2.0,
    )


def test_a_machine_is_unreachable_and_its_host_named() -> None:
    machine = machine_of(row(), HOST)
    assert machine is not None
    shown = msgspec.to_builtins(machine)
    assert (shown["state"], shown["host_status"], shown["host"], shown["region"]) == (
        "started",
        "unreachable",
        HOST.id,
        "mad",
    )
    assert "config" not in shown


def test_a_state_of_another_version_is_not_shown() -> None:
    assert machine_of(row("levitating"), HOST) is None


@pytest.mark.parametrize(
    ("query", "selected"),
    [
        (ListMachinesQuery(), True),
        (ListMachinesQuery(state=(State.STARTED,), metadata={"tier": "front"}), True),
        (ListMachinesQuery(state=(State.STOPPED,)), False),
        (ListMachinesQuery(metadata={"tier": "back"}), False),
    ],
)
def test_rows_are_selected_as_a_worker_selects_its_own(query: ListMachinesQuery, selected: bool) -> None:
    assert selects(query)(row()) is selected


def test_a_volume_names_its_host_as_its_zone() -> None:
    free = volume_of(KnownVolume(id="vol_1", name="data", state="created", size_gb=3, machine=""), HOST)
    assert (free.host_status, free.zone, free.attached_machine_id) == ("unreachable", HOST.id, None)
