"""Volumes as flyctl reads them: what is free is null, times are times, and the snapshot that it asks for is there."""

from collections.abc import Iterator
from datetime import datetime
from itertools import count
from typing import Any

import pytest

from tests.clients.flyctl_app import App
from tests.clients.wire import wire_to
from tests.e2e.running_node import RunningNode
from tests.waiting import wait_for

pytestmark = pytest.mark.root

UNSET = (
    "require_unique_zone unique_zone_app_wide snapshot_retention auto_backup_enabled fstype snapshot_id"
    " source_volume_id compute"
).split()
"""What fly-go sends as an explicit null when nobody set it."""
ALWAYS = {
    "id": str, "name": str, "state": str, "size_gb": int, "region": str, "zone": str, "encrypted": bool, "fstype": str,
    "host_status": str, "snapshot_retention": int, "auto_backup_enabled": bool,
}  # fmt: skip
COUNTED = ("blocks", "block_size", "blocks_free", "blocks_avail")


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture
def app(node: RunningNode, numbers: Iterator[int], sleeper: dict[str, Any]) -> Iterator[App]:
    app = App(wire_to(node), f"volumes-{next(numbers)}", sleeper)
    yield app
    app.close()


def made(app: App, **fields: Any) -> Any:
    body = dict.fromkeys(UNSET) | {"name": "data", "region": "local", "size_gb": 1, "encrypted": False} | fields
    return app.wire.ask("POST", f"{app.path}/volumes", body)


def shown(app: App, volume_id: str) -> dict[str, Any]:
    """The volume in every answer that has volumes."""
    (listed,) = [each for each in app.wire.ask("GET", f"{app.path}/volumes") if each["id"] == volume_id]
    of_org = app.wire.ask("GET", "/v1/orgs/traps/volumes")["volumes"]
    (of_org,) = [each for each in of_org if each["id"] == volume_id]
    return {"list": listed, "get": app.wire.ask("GET", f"{app.path}/volumes/{volume_id}"), "org": of_org}


def test_a_free_volume_has_null_for_its_machine(app: App) -> None:
    """flyctl asks the pointer: an empty text is a machine to it."""
    volume = made(app)
    for answer, each in {"create": volume, **shown(app, volume["id"])}.items():
        assert each["attached_machine_id"] is None and each["attached_alloc_id"] is None, answer


def test_a_volume_has_all_that_flyctl_reads(app: App) -> None:
    volume = made(app)
    for answer, each in {"create": volume, **shown(app, volume["id"])}.items():
        for name, kind in ALWAYS.items():
            assert type(each[name]) is kind, (answer, name)
        assert all(type(each[name]) is int and each[name] > 0 for name in COUNTED), answer
        assert datetime.fromisoformat(each["created_at"]).tzinfo is not None, answer
        assert (each["host_status"], each["state"], each["fstype"]) == ("ok", "created", "ext4"), answer


def test_an_attached_volume_names_its_machine_until_that_is_gone(app: App) -> None:
    volume = made(app)
    user = app.run(mounts=[{"volume": volume["id"], "path": "/data"}])
    for answer, each in shown(app, volume["id"]).items():
        assert each["attached_machine_id"] == user["id"], answer
    app.wire.ask("DELETE", app.at(user["id"], "?kill=true"))
    app.wait(user["id"], "destroyed")
    for answer, each in shown(app, volume["id"]).items():
        assert each["attached_machine_id"] is None, answer


def test_a_machines_config_says_what_its_volume_is(app: App) -> None:
    """`machine clone` makes the new machine's volume of this name and size; what is sent back is taken."""
    volume = made(app, name="wares", size_gb=2)
    user = app.run(mounts=[{"volume": volume["id"], "path": "/data"}])
    mount = {"volume": volume["id"], "path": "/data", "name": "wares", "size_gb": 2, "encrypted": False}
    for answer, machine in {"run": user, **app.shown(user["id"])}.items():
        assert machine["config"]["mounts"] == [mount], answer
    again = app.wire.ask("POST", app.at(user["id"]), {"config": user["config"]})
    assert again["config"]["mounts"] == [mount]


def test_a_fork_finds_its_source_on_a_host_that_is_ok(app: App) -> None:
    source = made(app)
    fork = made(app, source_volume_id=source["id"])
    assert fork["id"] != source["id"] and fork["size_gb"] == 1
    wait_for(lambda: shown(app, fork["id"])["get"]["state"] == "created")


def test_a_snapshot_is_listed_with_what_flyctl_prints(app: App) -> None:
    volume = made(app)
    path = f"{app.path}/volumes/{volume['id']}/snapshots"
    answer = app.wire.send("POST", path)
    assert answer.status == 200
    wait_for(lambda: [each["status"] for each in app.wire.ask("GET", path)] == ["created"])
    (snapshot,) = app.wire.ask("GET", path)
    assert snapshot["id"].startswith("vs_") and type(snapshot["size"]) is int and type(snapshot["volume_size"]) is int
    assert type(snapshot["digest"]) is str and snapshot["retention_days"] == 5
    assert datetime.fromisoformat(snapshot["created_at"]).tzinfo is not None


def test_a_volume_that_is_going_is_in_a_state_that_flyctl_hides(app: App) -> None:
    volume = made(app)
    gone = app.wire.ask("DELETE", f"{app.path}/volumes/{volume['id']}")
    assert gone["state"] in ("scheduling_destroy", "pending_destroy")
    left = [each["state"] for each in app.wire.ask("GET", f"{app.path}/volumes") if each["id"] == volume["id"]]
    assert set(left) <= {"scheduling_destroy", "pending_destroy"}
