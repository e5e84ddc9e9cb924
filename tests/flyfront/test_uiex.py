"""The calls below /api/v1."""

from tests.clients.wire import Wire
from tests.flyfront.asked import NAME


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
