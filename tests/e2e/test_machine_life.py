"""What one machine goes through, ordered over HTTP from a node that runs containers."""

import pytest

from hawker.api.contract.machine import (
    DELETE_MACHINE,
    GET_MACHINE,
    LIST_METADATA,
    LIST_VERSIONS,
    UPDATE_METADATA,
    DeleteMachineQuery,
    GetMachineQuery,
    SignalRequest,
    UpdateMetadataRequest,
)
from hawker.api.contract.machine_operation import (
    CORDON_MACHINE,
    CREATE_LEASE,
    RELEASE_LEASE,
    SIGNAL_MACHINE,
    STOP_MACHINE,
    UNCORDON_MACHINE,
    LeaseRequest,
)
from hawker.api.contract.run import Run
from hawker.errors import AlreadyExists, Conflict, LeaseHeld, NotFound, WrongState
from tests.e2e.shop import HELLO, Shop
from tests.e2e.web import answers, ask
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]


async def test_a_machine_that_was_ordered_runs_and_answers(shop: Shop) -> None:
    ordered = await shop.order({"image": HELLO}, name="web")
    assert ordered.state in ("created", "starting", "started")
    machine = await shop.wait(ordered.id, "started")
    assert (machine.name, machine.region, machine.host_status) == ("web", "local", "ok")
    assert machine.image_ref.repository == "hawker/hello" and machine.image_ref.digest.startswith("sha256:")
    await eventually(lambda: answers(machine.private_ip))
    assert machine.id in ask(machine.private_ip).body
    await shop.logged(machine.id, "GET / 200")
    assert [event.status for event in await shop.events(machine.id)] == ["created", "started"]


async def test_a_stopped_machine_is_off_until_it_is_started_again(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO})
    first = await shop.pid(machine.id)
    await eventually(lambda: answers(machine.private_ip))  # by then it hears signals, too
    await shop.stop(machine.id)
    stopped = await shop.wait(machine.id, "stopped")
    with pytest.raises(WrongState, match="unable to exec machine from current state: 'stopped'"):
        await shop.exec(machine.id, "/bin/hello", "id")
    with pytest.raises(OSError):
        ask(machine.private_ip)
    await shop.start(machine.id)
    started = await shop.wait(machine.id, "started")
    assert (started.version, started.private_ip) == (stopped.version, machine.private_ip)
    assert await shop.pid(machine.id) != first
    (exit,) = await shop.exits(machine.id)
    assert (exit.exit_code, exit.requested_stop, exit.restarting) == (0, True, False)


async def test_a_restart_is_a_new_instance_of_the_same_version(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO})
    first = await shop.pid(machine.id)
    await shop.restart(machine.id)
    after = await shop.wait(machine.id, "started")
    assert after.version == machine.version
    assert await shop.pid(machine.id) != first
    assert [event.status for event in await shop.events(machine.id)][2:] == ["restarting", "stopped", "started"]


async def test_files_written_inside_do_not_outlive_the_instance(shop: Shop, toolbox_image: str) -> None:
    machine = await shop.run({"image": toolbox_image})
    await shop.said(machine.id, "touch", "/tmp/written")
    assert "written" in await shop.said(machine.id, "ls", "/tmp")
    await shop.restart(machine.id)
    await shop.wait(machine.id, "started")
    assert "written" not in await shop.said(machine.id, "ls", "/tmp")


async def test_an_update_is_a_new_version_and_the_old_one_stays_in_the_history(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO, "env": {"COLOUR": "red"}})
    updated = await shop.update(machine.id, {"image": HELLO, "env": {"COLOUR": "blue"}})
    assert updated.version != machine.version
    await shop.wait(machine.id, "started")
    assert "COLOUR=blue\n" in await shop.said(machine.id, "/bin/hello", "env")
    versions = await shop.client.call(LIST_VERSIONS, params=shop.params(machine.id))
    assert [version.user_config.env for version in versions] == [{"COLOUR": "blue"}, {"COLOUR": "red"}]
    query = GetMachineQuery(version=machine.version)
    old = await shop.client.call(GET_MACHINE, params=shop.params(machine.id), query=query)
    assert old.state == "replaced"


async def test_an_update_of_a_version_that_is_not_current_is_refused(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO})
    with pytest.raises(Conflict, match="concurrent update"):
        await shop.update(machine.id, {"image": HELLO}, current_version="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert (await shop.get(machine.id)).version == machine.version


async def test_an_update_to_an_image_that_is_not_there_changes_nothing(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO})
    pid = await shop.pid(machine.id)
    with pytest.raises(Exception, match="nowhere"):
        await shop.update(machine.id, {"image": "oci:/nowhere"})
    after = await shop.get(machine.id)
    assert (after.state, after.version, await shop.pid(machine.id)) == ("started", machine.version, pid)


async def test_a_machine_that_is_not_to_be_launched_is_prepared_and_rests(shop: Shop) -> None:
    machine = await shop.order({"image": HELLO}, skip_launch=True)
    assert (await shop.wait(machine.id, "stopped")).state == "stopped"
    assert [event.status for event in await shop.events(machine.id)] == ["created", "stopped"]
    await shop.start(machine.id)
    assert (await shop.wait(machine.id, "started")).state == "started"


async def test_a_destroyed_machine_is_gone(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO}, name="web")
    with pytest.raises(WrongState, match="not currently stopped"):
        await shop.client.call(DELETE_MACHINE, params=shop.params(machine.id), query=DeleteMachineQuery())
    await shop.destroy(machine.id)
    await shop.gone(machine.id)
    assert await shop.machines() == []
    assert (await shop.get(machine.id)).state == "destroyed"
    await shop.run({"image": HELLO}, name="web")


async def test_a_name_is_taken_once(shop: Shop) -> None:
    await shop.order({"image": HELLO}, name="web")
    with pytest.raises(AlreadyExists, match="web"):
        await shop.order({"image": HELLO}, name="web")
    assert len(await shop.machines()) == 1


async def test_an_order_with_a_key_is_filled_once(shop: Shop) -> None:
    first = await shop.order({"image": HELLO}, key="order-1")
    again = await shop.order({"image": HELLO}, key="order-1")
    assert again.id == first.id
    assert len(await shop.machines()) == 1


async def test_a_lease_keeps_others_out_until_it_is_released(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO})
    call, params = shop.client.call, shop.params(machine.id)
    nonce = (await call(CREATE_LEASE, params=params, body=LeaseRequest(ttl=60))).data.nonce
    for refused in (shop.stop, shop.start, shop.restart, shop.destroy):
        with pytest.raises(LeaseHeld):
            await refused(machine.id)
    again = await call(CREATE_LEASE, params=params, body=LeaseRequest(ttl=60), nonce=nonce)
    assert again.data.nonce == nonce
    await call(STOP_MACHINE, params=params, nonce=nonce)
    await shop.wait(machine.id, "stopped")
    await call(RELEASE_LEASE, params=params, nonce=nonce)
    await shop.destroy(machine.id)


async def test_metadata_changes_without_a_new_version_even_while_leased(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO, "metadata": {"role": "web", "old": "yes"}})
    call, params = shop.client.call, shop.params(machine.id)
    await call(CREATE_LEASE, params=params, body=LeaseRequest(ttl=60))
    await call(UPDATE_METADATA, params=params, body=UpdateMetadataRequest(metadata={"role": "api", "old": None}))
    assert await call(LIST_METADATA, params=params) == {"role": "api"}
    after = await shop.get(machine.id)
    assert (after.version, after.config and after.config.metadata) == (machine.version, {"role": "api"})


async def test_a_cordoned_machine_says_so(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO})
    await shop.client.call(CORDON_MACHINE, params=shop.params(machine.id))
    assert (await shop.get(machine.id)).cordoned
    await shop.client.call(UNCORDON_MACHINE, params=shop.params(machine.id))
    assert not (await shop.get(machine.id)).cordoned


@pytest.mark.parametrize("signal", ["USR1", 10, "SIGUSR1"])
async def test_a_signal_reaches_the_workload(shop: Shop, toolbox_image: str, signal: str | int) -> None:
    script = "trap 'echo heard' USR1; echo ready; while :; do sleep 0.05; done"
    machine = await shop.run({"image": toolbox_image, "init": {"exec": ["sh", "-c", script]}})
    await shop.logged(machine.id, "ready")
    await shop.client.call(SIGNAL_MACHINE, params=shop.params(machine.id), body=SignalRequest(signal=signal))
    await shop.logged(machine.id, "heard")


async def test_processes_are_listed_with_what_they_listen_on(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO})
    await eventually(lambda: _listens(shop, machine.id))


async def _listens(shop: Shop, machine_id: str) -> bool:
    sockets = [socket.address for process in await shop.processes(machine_id) for socket in process.listen_sockets]
    return any(address.endswith(":8080") for address in sockets)


async def test_every_step_is_in_the_history_of_runs(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO})
    await shop.stop(machine.id)
    await shop.wait(machine.id, "stopped")
    runs = await eventually(lambda: _ended_runs(shop, machine.id))
    assert [(run.flow, run.state) for run in runs] == [("create", "done"), ("stop", "done")]
    assert [step.name for step in runs[0].steps] == ["image", "rootfs", "volume", "network", "launch"]


async def _ended_runs(shop: Shop, machine_id: str) -> list[Run]:
    runs = await shop.runs(machine_id)
    return list(runs) if all(run.ended_at for run in runs) else []


async def test_a_missing_machine_is_not_found(shop: Shop) -> None:
    with pytest.raises(NotFound):
        await shop.get("00000000000000")
    with pytest.raises(NotFound):
        await Shop(shop.client, "no-such-app").order({"image": HELLO})
