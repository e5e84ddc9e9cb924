"""What a destination takes: checked, held once, owned once."""

import pytest
from msgspec import structs

from hawker.api.contract.move import GET_MOVE, MOVE_MACHINE, MoveParams, MoveRequest
from hawker.api.contract.move_peer import SHOW_INCOMING
from hawker.config import validate
from hawker.errors import (
    Fault,
    NotFound,
    Unprocessable,
)
from hawker.ids import VolumeId
from hawker.record.move import MoveState
from hawker.record.volume import SealedKey
from hawker.sim.node.sim_worker import params
from hawker.store.contract import Tx
from tests.sim.moves.fleets import played_fleet
from tests.waiting import eventually
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


async def test_an_encrypted_volume_goes_only_to_a_node_that_encrypts() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[1].world.disks.encrypts = False
        move = await fleet.ended(0, (await fleet.move_free(0, 1)).id)
        assert move.state is MoveState.ABORTED and "cryptsetup" in move.reason
        fleet.hosts[1].world.disks.encrypts = True
        deps = fleet.worker(0).parts.deps

        def spoil(tx: Tx) -> None:
            record = deps.volumes.get(tx, VolumeId(fleet.free))
            other = SealedKey(volume=record.id, sealed=b"under another key of the node")
            deps.volumes.change(tx, record, key=other)

        await deps.store.write(spoil)
        with pytest.raises(Fault, match="cannot be opened"):
            await fleet.move_free(0, 1)


async def test_a_move_that_nobody_knows_is_not_found() -> None:
    async with played_fleet() as fleet:
        with pytest.raises(NotFound):
            await fleet.worker(0).api.call(SHOW_INCOMING, params=MoveParams(move_id="01"))
        assert params(fleet.machine).machine_id == fleet.machine


async def test_a_machine_does_not_go_to_the_node_of_its_spare_or_without_its_label() -> None:
    async with played_fleet() as fleet:
        spare = await fleet.worker(0).stopped(standbys=[fleet.machine])
        store, table = fleet.hosts[1].world.store, fleet.worker(1).parts.deps.table
        record, versions = fleet.worker(0).record(spare), ()
        await store.write(lambda tx: table.enter(tx, record, versions, ()))
        move = await fleet.ended(0, (await fleet.move(0, 1)).id)
        assert move.state is MoveState.ABORTED and f"machine {spare} is at the node" in move.reason
        labelled = await fleet.worker(0).stopped()
        await fleet.worker(0).set_metadata(labelled, "hawker_labels", "disk=fast")
        body = MoveRequest(to=fleet.id(2))
        made = await fleet.worker(0).api.call(MOVE_MACHINE, params=params(labelled), body=body)
        assert "does not have the label disk=fast" in (await fleet.ended(0, made.id)).reason


async def test_a_machine_that_an_older_version_took_goes_where_its_config_would_be_refused_now() -> None:
    """No node but its own would have it, and a drain never ended."""
    async with played_fleet() as fleet:
        deps, record = fleet.worker(0).parts.deps, fleet.worker(0).record(fleet.machine)
        large = structs.replace(record.config, env={f"K{number}": "v" for number in range(2001)})
        with pytest.raises(Unprocessable, match="env"):
            validate(large, deps.driver.features)
        await deps.store.write(lambda tx: deps.table.change(tx, record, config=large))
        move = await fleet.ended(0, (await fleet.move(0, 1)).id)
        assert (move.state, move.reason) == (MoveState.DONE, "")
        assert fleet.worker(1).record(fleet.machine).config == large
        assert await fleet.settled() == []


async def test_a_disk_that_refuses_what_was_granted_delays_the_new_owner_and_the_old_one_says_why() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[1].world.moved_files.refuses = True
        move = await fleet.move(0, 1)

        async def says_why() -> bool:
            told = await fleet.worker(0).api.call(GET_MOVE, params=MoveParams(move_id=move.id))
            return told.state == MoveState.GRANTED and "its disk refuses the file of" in told.reason

        await eventually(says_why)
        fleet.hosts[1].world.moved_files.refuses = False
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE
        assert await fleet.settled() == []
