"""The calls below /api/v1."""

from datetime import datetime
from typing import Any
from urllib.parse import quote

from tests.clients.wire import Wire
from tests.flyfront.asked import NAME
from tests.waiting import wait_for


def test_organizations_are_those_that_have_apps(wire: Wire, machine: str) -> None:
    found = wire.ask("GET", "/api/v1/organizations?admin=false")["organizations"]
    assert {"personal", "traps"} <= {each["slug"] for each in found}
    one = wire.ask("GET", "/api/v1/organizations/traps")["organization"]
    assert (one["id"], one["personal"], one["billing_status"]) == ("traps", False, "CURRENT")
    assert isinstance(one["internal_numeric_id"], int)
    wire.ask("GET", "/api/v1/organizations/nobody", status=404)


def test_a_build_has_a_number_and_ends(wire: Wire) -> None:
    begun = wire.ask("POST", "/api/v1/builds", {"app_name": NAME, "builder_type": "remote", "machine_id": ""})
    ended = {"build_id": begun["id"], "app_name": NAME, "status": "completed", "logs": "", "timings": {}}
    assert wire.ask("POST", "/api/v1/builds/finish", ended)["id"] == begun["id"] > 0
    refusal = wire.ask("POST", "/api/v1/builds/depot_builder", {"region": "ams"}, status=404)
    assert "give --image" in refusal["error"]


def test_a_release_goes_from_pending_to_its_end_and_stays_there(wire: Wire, machine: str) -> None:
    begun = wire.ask("POST", "/api/v1/releases", {"app_name": NAME, "image": "hawker/hello"}, status=201)["release"]
    assert (begun["status"], begun["in_progress"], begun["stable"]) == ("pending", True, False)
    assert begun["user"] == "root@hawker.internal"  # a text: the client ends a deploy at an object
    path = f"/api/v1/releases/{begun['id']}"
    for status in ("running", "running", "failed", "failed"):
        assert wire.ask("PATCH", path, {"status": status, "metadata": {}})["status"] == status
    wire.ask("PATCH", path, {"status": "complete"}, status=409)
    wire.ask("PATCH", path, {"status": "nosuch"}, status=422)
    for missing in ("front.999", "front", "front.x", "nobody.1", ".1"):
        wire.ask("PATCH", f"/api/v1/releases/{missing}", {"status": "running"}, status=404)
    listed = wire.ask("GET", f"/api/v1/apps/{NAME}/releases?limit=2")["releases"]
    assert [each["version"] for each in listed] == [begun["version"], begun["version"] - 1]
    assert wire.ask("GET", f"/api/v1/apps/{NAME}/releases/current")["status"] == "complete"
    assert NAME in wire.ask("GET", "/api/v1/releases/all_current")
    wire.ask("POST", "/api/v1/releases", {"app_name": "nobody", "image": "x"}, status=404)


def _texts(answer: dict[str, Any]) -> list[str]:
    return [each["attributes"]["message"] for each in answer["data"]]


def test_logs_begin_with_the_last_lines_and_go_on_from_a_token(wire: Wire, machine: str) -> None:
    """With a token the answer is held open until there is a line."""
    path = f"/api/v1/apps/{NAME}/logs"
    wait_for(lambda: "machine started" in _texts(wire.ask("GET", path)))
    first = wire.ask("GET", f"{path}?instance={machine}&region=")
    (started,) = [each["attributes"] for each in first["data"] if each["attributes"]["message"] == "machine started"]
    assert (started["instance"], started["level"]) == (machine, "info")
    assert started["meta"] == {"instance": machine, "region": started["region"], "event": {"provider": "runner"}}
    assert datetime.fromisoformat(started["timestamp"])
    wire.ask("POST", f"/v1/apps/{NAME}/machines/{machine}/restart")
    token = first["meta"]["next_token"]
    found = list[str]()

    def restarted() -> bool:
        nonlocal token
        answer = wire.ask("GET", f"{path}?next_token={quote(token)}")
        token = answer["meta"]["next_token"]
        found.extend(_texts(answer))
        return "machine started" in found

    wait_for(restarted)
    assert found.count("machine started") == 1


def test_an_app_without_lines_says_so_in_a_line_because_clients_ask_until_they_get_one(wire: Wire) -> None:
    wire.ask("POST", "/v1/apps", {"app_name": "silent", "org_slug": "traps"}, status=201)
    answer = wire.ask("GET", "/api/v1/apps/silent/logs")
    assert _texts(answer) == ["app 'silent' has no lines yet"] and answer["meta"]["next_token"]
    wire.ask("GET", "/api/v1/apps/silent/logs?next_token=nonsense", status=400)
    wire.ask("GET", "/api/v1/apps/nobody/logs", status=404)
    wire.ask("DELETE", "/v1/apps/silent", status=202)
