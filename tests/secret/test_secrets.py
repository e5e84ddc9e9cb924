"""Secrets of an app: set, pinned to the versions of its machines, and gone with them."""

import base64
from typing import Any

import pytest

from hawker.api.contract.app import DELETE_APP, AppParams
from hawker.errors import NotFound, Unprocessable, WrongState
from hawker.ids import MachineId
from hawker.machine import State
from hawker.record.app import PINNED, SECRETS
from hawker.secret.secrets import MAX_SECRETS, MAX_VALUE_BYTES, Secrets
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio


@pytest.fixture
def secrets(worker: SimWorker) -> Secrets:
    return worker.parts.deps.secrets


def given(stall: MemoryWorld, machine_id: str) -> dict[str, str]:
    """What the running instance was given, without what the platform adds."""
    instance = stall.host.look(MachineId(machine_id))
    assert instance is not None
    return {key: value for key, value in instance.spec.processes[0].env.items() if not key.startswith("FLY_")}


async def test_values_are_set_and_removed_all_at_once(secrets: Secrets) -> None:
    assert await secrets.set(APP, {"A": "1", "B": "2"}) == 1
    first = secrets.get(APP, "A")
    assert await secrets.set(APP, {"A": "3", "B": None}) == 2
    (record,) = secrets.list(APP)
    assert secrets.value(APP, record) == "3" and record.digest != first.digest
    assert record.created_at == first.created_at
    assert await secrets.delete(APP, "A") == 3 and secrets.list(APP) == []


async def test_nothing_of_a_value_is_on_the_disk(worker: SimWorker, secrets: Secrets) -> None:
    await secrets.set(APP, {"A": "very secret"})
    machine_id = await worker.started()
    stored = [record.sealed for _, record in worker.store.scan(SECRETS)]
    stored += [sealed for _, pinned in worker.store.scan(PINNED, machine_id) for sealed in pinned.sealed.values()]
    assert len(stored) == 2 and not any(b"secret" in sealed for sealed in stored)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"9A": "1"}, "cannot be the name"),
        ({"": "1"}, "cannot be the name"),
        ({"A=B": "1"}, "cannot be the name"),
        ({"A/B": "1"}, "cannot be the name"),
        ({"A" * 256: "1"}, "cannot be the name"),
        ({"A": "x" * (MAX_VALUE_BYTES + 1)}, "larger than"),
        ({"A": "x\0"}, "zero byte"),
        ({f"A{number}": "1" for number in range(MAX_SECRETS + 1)}, "at most"),
    ],
)
async def test_a_value_that_cannot_be_a_secret_is_refused_and_changes_nothing(
    secrets: Secrets, values: dict[str, str], text: str
) -> None:
    with pytest.raises(Unprocessable, match=text):
        await secrets.set(APP, {"GOOD": "1"} | values)
    assert secrets.list(APP) == []


async def test_an_app_or_a_secret_that_is_not_there_is_not_found(secrets: Secrets) -> None:
    with pytest.raises(NotFound, match="app not found"):
        await secrets.set("other", {"A": "1"})
    with pytest.raises(NotFound, match="secret A not found"):
        await secrets.delete(APP, "A")


async def test_a_machine_keeps_what_it_was_given_until_it_is_updated(
    worker: SimWorker, stall: MemoryWorld, secrets: Secrets
) -> None:
    await secrets.set(APP, {"A": "1", "GONE": "x"})
    machine_id = await worker.started(env={"A": "of the config", "B": "2"})
    assert given(stall, machine_id) == {"A": "1", "B": "2", "GONE": "x", "PATH": given(stall, machine_id)["PATH"]}
    await secrets.set(APP, {"A": "3", "GONE": None})
    await worker.restart(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    assert given(stall, machine_id)["A"] == "1" and given(stall, machine_id)["GONE"] == "x"
    await worker.update(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    assert given(stall, machine_id)["A"] == "3" and "GONE" not in given(stall, machine_id)


async def test_a_machine_goes_without_when_it_is_told_to(
    worker: SimWorker, stall: MemoryWorld, secrets: Secrets
) -> None:
    await secrets.set(APP, {"A": "1"})
    machine = await worker.create(order={"skip_secrets": True})
    await worker.reaches(machine.id, State.STARTED)
    assert "A" not in given(stall, machine.id)


async def test_a_process_takes_only_what_it_asks_for(worker: SimWorker, stall: MemoryWorld, secrets: Secrets) -> None:
    await secrets.set(APP, {"A": "1", "B": "2"})
    asked = [{"env_var": "MINE", "name": "A"}, {"env_var": "B"}]
    machine_id = await worker.started(processes=[{"secrets": asked, "ignore_app_secrets": True}])
    env = given(stall, machine_id)
    assert (env["MINE"], env["B"], "A" in env) == ("1", "2", False)


async def test_a_file_has_the_content_that_a_secret_holds(
    worker: SimWorker, stall: MemoryWorld, secrets: Secrets
) -> None:
    await secrets.set(APP, {"CERT": base64.b64encode(b"certificate").decode()})
    machine_id = await worker.started(files=[{"guest_path": "/etc/cert", "secret_name": "CERT"}])
    instance = stall.host.look(MachineId(machine_id))
    assert instance is not None
    assert [file.content for file in instance.spec.files if file.path == "/etc/cert"] == [b"certificate"]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"files": [{"guest_path": "/a", "secret_name": "NOT_SET"}]}, r"config\.files\[0\]\.secret_name: 'NOT_SET'"),
        ({"processes": [{"secrets": [{"env_var": "NOT_SET"}]}]}, r"config\.processes\[0\]\.secrets\[0\]: 'NOT_SET'"),
        ({"files": [{"guest_path": "/a", "secret_name": "TEXT"}]}, "is not base64"),
        ({"files": [{"guest_path": "/a", "secret_name": "TEXT", "raw_value": "aa=="}]}, "exclude each other"),
        ({"processes": [{"secrets": [{"name": "TEXT"}]}]}, "needs an env_var"),
    ],
)
async def test_a_config_cannot_name_what_is_not_there(
    worker: SimWorker, secrets: Secrets, config: dict[str, Any], text: str
) -> None:
    await secrets.set(APP, {"TEXT": "not base64!"})
    with pytest.raises(Unprocessable, match=text):
        await worker.create(**config)
    assert worker.machines() == []


async def test_an_order_can_wait_for_no_version_that_is_not_here(worker: SimWorker, secrets: Secrets) -> None:
    version = await secrets.set(APP, {"A": "1"})
    await worker.create(order={"min_secrets_version": version})
    with pytest.raises(WrongState, match="version 2 of the secrets is not known here"):
        await worker.create(order={"min_secrets_version": version + 1})


async def test_they_go_with_the_machine_and_with_the_app(worker: SimWorker, secrets: Secrets) -> None:
    await secrets.set(APP, {"A": "1"})
    machine_id = await worker.started()
    await worker.destroy(machine_id, force=True)
    await worker.at_rest()
    assert list(worker.store.scan(PINNED)) == []
    await worker.api.call(DELETE_APP, params=AppParams(app_name=APP))
    assert list(worker.store.scan(SECRETS)) == []
