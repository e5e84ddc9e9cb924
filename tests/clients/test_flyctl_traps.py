"""What crashes or stalls flyctl never leaves a node: each answer that once did, in every call that gives it.

`image.compressedSizeFull` and `releases` belong to the GraphQL surface, which a node does not have yet.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.clients.conftest import IS_ROOT
from tests.clients.flyctl_app import LAUNCHED_BY_FLYCTL, App
from tests.clients.wire import Answer, wire_to
from tests.e2e.running_node import RunningNode
from tests.waiting import wait_for

WEB_CHECK = {"type": "http", "port": 8080, "path": "/", "interval": "1s", "timeout": "30s"}
TOLD_OF_AN_EXIT = {"exit_code", "guest_exit_code", "guest_signal", "oom_killed", "requested_stop", "exited_at"}

needs_images = pytest.mark.skipif(not IS_ROOT, reason="needs root: without it no image is run, so no check can pass")


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture
def app(node: RunningNode, numbers: Iterator[int], sleeper: dict[str, Any]) -> Iterator[App]:
    app = App(wire_to(node), f"traps-{next(numbers)}", sleeper)
    yield app
    app.close()


def test_the_guest_is_always_there(app: App) -> None:
    """`machine status` reads it without looking."""
    made = app.order()
    assert made["config"]["guest"] == {"cpu_kind": "shared", "cpus": 1, "memory_mb": 256}
    app.wait(made["id"], "started")
    config = app.sleeper | {"size": "shared-cpu-2x"}
    updated = app.wire.ask("POST", app.at(made["id"]), {"config": config})
    assert (updated["config"]["guest"]["cpus"], updated["config"]["size"]) == (2, "shared-cpu-2x")
    app.wait(made["id"], "started")
    old = app.get(made["id"], f"?version={made['version']}")
    assert (old["state"], old["config"]["guest"]["cpus"]) == ("replaced", 1)
    (org,) = [each for each in app.wire.ask("GET", "/v1/orgs/traps/machines")["machines"] if each["id"] == made["id"]]
    assert org["config"]["guest"]["cpus"] == 2
    versions = app.wire.ask("GET", app.at(made["id"], "/versions"))
    assert [each["user_config"]["guest"]["cpus"] for each in versions] == [2, 1]
    for state in ("started", "destroyed"):
        if state == "destroyed":
            app.wire.ask("DELETE", app.at(made["id"], "?kill=true"))
            app.wait(made["id"], "destroyed")
        for answer, machine in app.shown(made["id"]).items():
            assert (machine["state"], machine["config"]["guest"]["memory_mb"]) == (state, 512), answer


def test_a_check_always_says_when_it_was_made(app: App) -> None:
    """Also one that was never made: the machine is off, or the first look is to come."""
    checks = {"web": WEB_CHECK | {"grace_period": "1m"}}
    services = [{"protocol": "tcp", "internal_port": 8080, "ports": [{"port": 80}], "checks": [WEB_CHECK]}]
    off = app.order(checks=checks, services=services, fields={"skip_launch": True})
    on = app.order(checks=checks, services=services)
    app.wait(off["id"], "stopped")
    app.wait(on["id"], "started")
    for machine_id in (off["id"], on["id"]):
        found = [check for machine in app.shown(machine_id).values() for check in machine["checks"]]
        assert {check["name"] for check in found} == {"web", "servicecheck-00-http-8080"}
        assert all(check["updated_at"].endswith("Z") and check["status"] and "output" in check for check in found)
    assert all(check["updated_at"] for made in (off, on) for check in made["checks"])


@needs_images
def test_a_check_that_passes_says_when(app: App) -> None:
    made = app.run(checks={"web": WEB_CHECK})
    wait_for(lambda: app.get(made["id"])["checks"][0]["status"] == "passing")
    for machine in app.shown(made["id"]).values():
        (check,) = machine["checks"]
        assert check["status"] == "passing" and check["updated_at"] >= machine["created_at"]


@needs_images
def test_a_containers_check_says_when_it_was_made(app: App, sleeper: dict[str, Any]) -> None:
    checks = [{"name": "up", "interval": 1, "timeout": 30, "http": {"port": 8080, "path": "/"}}]
    made = app.order(image=None, containers=[{"name": "web", "image": sleeper["image"], "healthchecks": checks}])
    app.wait(made["id"], "started")
    wait_for(lambda: [check["status"] for check in app.get(made["id"])["checks"]] == ["passing"])
    for answer, machine in {"create": made, **app.shown(made["id"])}.items():
        assert all(check["name"] and check["updated_at"] for check in machine.get("checks", ())), answer
        assert machine["config"]["guest"], answer


def ended_by_itself(app: App) -> str:
    made = app.order(init={"exec": ["/bin/hello", "exit", "3"]} if IS_ROOT else exiting(3), restart={"policy": "no"})
    app.wait(made["id"], "stopped")
    return str(made["id"])


def exiting(code: int) -> dict[str, Any]:
    return {"exec": ["/bin/sh", "-c", f"exit {code}"]}


def never_executed(app: App) -> str:
    made = app.order(init={"exec": ["/no/such/program"]}, restart={"policy": "no"})
    wait_for(lambda: app.get(made["id"])["state"] in ("stopped", "failed"))
    return str(made["id"])


def killed(app: App) -> str:
    made = app.run(restart={"policy": "no"})
    app.do(made["id"], "signal", {"signal": 9})
    app.wait(made["id"], "stopped")
    return str(made["id"])


def stopped(app: App) -> str:
    made = app.run()
    app.do(made["id"], "stop")
    app.wait(made["id"], "stopped")
    return str(made["id"])


def restarted(app: App) -> str:
    made = app.run()
    app.do(made["id"], "restart?force_stop=false&timeout=5s&signal=SIGTERM")
    app.wait(made["id"], "started")
    return str(made["id"])


def updated(app: App) -> str:
    made = app.run()
    app.wire.ask("POST", app.at(made["id"]), {"config": app.sleeper | {"env": {"A": "b"}}})
    app.wait(made["id"], "started")
    return str(made["id"])


def destroyed(app: App) -> str:
    made = app.run()
    app.wire.ask("DELETE", app.at(made["id"], "?kill=true"))
    app.wait(made["id"], "destroyed")
    return str(made["id"])


ENDINGS = (ended_by_itself, never_executed, killed, stopped, restarted, updated, destroyed)


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
def test_an_exit_has_its_exit_event_and_the_newest_is_first(app: App, ending: Any) -> None:
    """The smoke check and the release command read both without looking."""
    machine_id = ending(app)
    answers = {answer: machine["events"] for answer, machine in app.shown(machine_id).items()}
    answers["events"] = app.wire.ask("GET", app.at(machine_id, "/events"))
    for answer, events in answers.items():
        exits = [event for event in events if event["type"] == "exit"]
        assert exits, answer
        for exit in exits:
            told = exit["request"]["exit_event"]
            assert set(told) >= TOLD_OF_AN_EXIT
        ids = [event["id"] for event in events]
        assert ids == sorted(ids, reverse=True) and len(set(ids)) == len(ids), answer
        times = [event["timestamp"] for event in events]
        assert times == sorted(times, reverse=True) and events[-1]["type"] == "launch", answer


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
def test_the_host_is_always_ok(app: App, ending: Any) -> None:
    """Else update, clone, fork and leasing are refused or skipped."""
    machine_id = ending(app)
    assert {machine["host_status"] for machine in app.shown(machine_id).values()} == {"ok"}


def test_a_nonce_is_shown_by_the_call_that_took_the_lease_alone(app: App) -> None:
    """Whoever reads one elsewhere takes the lease for its own and acquires none."""
    assert "nonce" not in app.order()
    made = app.order(fields={"lease_ttl": 120})
    nonce = made["nonce"]
    app.wait(made["id"], "started")
    for answer, machine in app.shown(made["id"]).items():
        assert "nonce" not in str(machine), answer
    assert app.get(made["id"], "?include_leases=true")["lease"]["owner"]
    again = {"config": app.sleeper, "lease_ttl": 120}
    updated = app.wire.ask("POST", app.at(made["id"]), again, fly_machine_lease_nonce=nonce)
    assert updated["nonce"] == nonce
    app.wait(made["id"], "settled")
    bare = app.wire.ask("POST", app.at(made["id"]), {"config": app.sleeper}, fly_machine_lease_nonce=nonce)
    assert "nonce" not in bare
    assert "nonce" not in str(app.wire.ask("GET", "/v1/orgs/traps/machines"))
    assert nonce not in str(app.wire.ask("GET", app.at(made["id"], "/events")))


def test_a_lease_comes_in_an_envelope(app: App) -> None:
    made = app.run()
    taken = app.wire.ask("POST", app.at(made["id"], "/lease?ttl=30"), status=201)
    nonce = taken["data"]["nonce"]
    assert (taken["status"], taken["data"]["version"]) == ("success", made["instance_id"])
    kept = app.wire.ask("POST", app.at(made["id"], "/lease?ttl=60"), status=201, fly_machine_lease_nonce=nonce)
    assert (kept["status"], kept["data"]["nonce"]) == ("success", nonce)
    assert kept["data"]["expires_at"] > taken["data"]["expires_at"]
    seen = app.wire.ask("GET", app.at(made["id"], "/lease"))
    assert (seen["status"], seen["data"]["nonce"]) == ("success", nonce)
    gone = app.wire.ask("DELETE", app.at(made["id"], "/lease"), fly_machine_lease_nonce=nonce)
    assert gone == {"status": "success", "data": {"ok": True}}
    assert app.wire.ask("GET", app.at(made["id"], "/lease"), status=404)["error"] == "lease not found"


@pytest.mark.parametrize(
    "body", [None, b"", b"{}", b'{"ttl": null, "description": null}', b'{"ttl": 0}', b'{"ttl": 999999999}'], ids=repr
)
def test_a_free_lease_is_never_refused(app: App, body: bytes | None) -> None:
    """flyctl tries again for a minute, without a word, whatever the error is."""
    made = app.order(fields={"skip_launch": True})
    answer = app.wire.send("POST", app.at(made["id"], "/lease"), body)
    assert answer.status == 201 and answer.json["data"]["nonce"]


@pytest.mark.parametrize("ending", ENDINGS[:-1], ids=lambda ending: ending.__name__)
def test_a_lease_is_given_in_every_state(app: App, ending: Any) -> None:
    machine_id = ending(app)
    assert app.wire.send("POST", app.at(machine_id, "/lease?ttl=13")).status == 201


def test_a_lease_that_is_held_is_refused_in_words_that_end_a_deploy(app: App) -> None:
    made = app.run()
    app.wire.ask("POST", app.at(made["id"], "/lease?ttl=30"), status=201)
    for method, rest in (("POST", "/lease?ttl=30"), ("POST", "/stop"), ("POST", "/cordon"), ("DELETE", "?kill=true")):
        refusal = app.wire.ask(method, app.at(made["id"], rest), status=409)
        assert "lease currently held by" in refusal["error"]
    app.wire.ask("POST", app.at(made["id"], "/metadata/fly_bluegreen"), {"value": "green"}, status=204)


def test_a_start_always_has_a_body(app: App) -> None:
    """fly-go reads one."""
    made = app.order(fields={"skip_launch": True})
    app.wait(made["id"], "stopped")
    assert app.do(made["id"], "start") == {"previous_state": "stopped", "migrated": False, "new_host": ""}
    app.wait(made["id"], "started")
    assert set(app.do(made["id"], "start")) == {"previous_state", "migrated", "new_host"}


@needs_images
def test_a_suspended_machine_is_resumed_with_a_body_too(app: App) -> None:
    made = app.run()
    assert app.do(made["id"], "suspend")["ok"] is True
    app.wait(made["id"], "suspended")
    for answer, machine in app.shown(made["id"]).items():
        assert (machine["state"], machine["host_status"]) == ("suspended", "ok"), answer
        assert machine["config"]["guest"], answer
    assert app.do(made["id"], "start") == {"previous_state": "suspended", "migrated": False, "new_host": ""}
    app.wait(made["id"], "started")


@needs_images
@pytest.mark.parametrize("local", [False, True], ids=["the sample image", "a layout on the host"])
def test_a_machine_is_cloned_by_its_image_ref(app: App, toolbox_image: str, local: bool) -> None:
    """flyctl puts it together again, also where the registry is empty."""
    made = app.run(**({"image": toolbox_image} if local else {}))
    ref = made["image_ref"]
    tag = f":{ref['tag']}" if ref["tag"] else ""
    clone = app.run(image=f"{ref['registry']}/{ref['repository']}{tag}@{ref['digest']}")
    assert clone["image_ref"]["digest"] == ref["digest"]


def test_marks_of_flyctl_stay(app: App) -> None:
    """Without `fly_platform_version` a machine is none of deploy's, scale's and status's."""
    made = app.order()
    assert made["config"]["metadata"] == LAUNCHED_BY_FLYCTL
    app.wait(made["id"], "started")
    app.wire.ask("POST", app.at(made["id"], "/metadata/colour"), {"value": "red"}, status=204)
    app.wire.ask("PATCH", app.at(made["id"], "/metadata"), {"metadata": {"size": "xl"}}, status=204)
    app.do(made["id"], "stop")
    app.wait(made["id"], "stopped")
    for answer, machine in app.shown(made["id"]).items():
        assert machine["config"]["metadata"] == LAUNCHED_BY_FLYCTL | {"colour": "red", "size": "xl"}, answer
    found = app.list("?metadata.fly_platform_version=v2&metadata.fly_process_group=app")
    assert [machine["id"] for machine in found] == [made["id"]]


def test_a_machine_that_is_none_is_missed_in_flyctls_words(app: App) -> None:
    for rest in ("", "/wait", "/events", "/versions", "/ps", "/lease"):
        refusal = app.wire.ask("GET", app.at("00000000000000", rest), status=404)
        assert refusal["error"] == "machine not found"


def waited(app: App, machine_id: str, query: str) -> Answer:
    return app.wire.send("GET", app.at(machine_id, f"/wait?{query}"))


def test_a_wait_that_is_too_long_says_where_the_machine_is(app: App) -> None:
    """flyctl looks for `machine failed to reach desired state`, and goes on but for 400 and 404."""
    made = app.run()
    late = waited(app, made["id"], "state=stopped&timeout=1")
    text = "deadline_exceeded: machine failed to reach desired state, stopped, currently started"
    assert (late.status, late.json["error"]) == (408, text)
    assert waited(app, made["id"], "state=stopped&timeout=0").status == 400
    assert waited(app, made["id"], "state=stopped&timeout=61").status == 400
    assert waited(app, made["id"], "state=nowhere&timeout=1").status == 400


def test_a_wait_for_one_of_several_states_is_answered_by_any(app: App) -> None:
    made = app.run()
    for query in ("state=stopped&state=started", "state=stopped,started", "state=settled", "", "timeout=60s"):
        found = waited(app, made["id"], query).json
        assert (found["ok"], found["state"], found["version"]) == (True, "started", made["version"])
        assert found["event_id"] == app.wire.ask("GET", app.at(made["id"], "/events"))[0]["id"]


def test_a_wait_for_a_version_that_was_replaced_is_a_conflict(app: App) -> None:
    made = app.run()
    app.wire.ask("POST", app.at(made["id"]), {"config": app.sleeper | {"env": {"A": "b"}}})
    app.wait(made["id"], "settled")
    assert waited(app, made["id"], f"state=started&version={made['version']}").status == 409
    assert waited(app, made["id"], f"state=started&instance_id={made['version']}").status == 409


def test_a_machine_that_is_gone_is_gone_for_whoever_waits(app: App) -> None:
    """For `destroyed`, flyctl takes 404 as success too; a machine that once was is still told about."""
    made = app.run()
    app.wire.ask("DELETE", app.at(made["id"], "?kill=true"))
    assert waited(app, made["id"], "state=destroyed&timeout=60").json["state"] == "destroyed"
    assert waited(app, made["id"], "state=destroyed").status in (200, 404)
    assert waited(app, made["id"], "state=started&timeout=5").status == 404
    assert waited(app, made["id"], "state=settled&timeout=5").status in (200, 404)


def test_a_machine_that_ended_at_once_was_started(app: App) -> None:
    """`from_event_id` takes the race out of an action and its wait."""
    machine_id = ended_by_itself(app)
    seen = app.wire.ask("GET", app.at(machine_id, "/events"))[0]["id"]
    app.do(machine_id, "start")

    def ended_again() -> bool:
        newest = app.get(machine_id)["events"][0]
        return bool(newest["type"] == "exit" and newest["id"] > seen)

    wait_for(ended_again)
    found = waited(app, machine_id, f"state=started&timeout=5&from_event_id={seen}")
    assert (found.status, found.json["state"]) == (200, "started")


def test_every_answer_has_the_id_that_flyctl_prints(app: App) -> None:
    for method, path in (("GET", app.path), ("GET", app.at("00000000000000")), ("GET", "/nowhere")):
        assert app.wire.send(method, path).headers["fly-request-id"]
