"""Two clients issue legal and illegal calls at random; every answer is what the model says.

A longer run: JUDGE=long.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule, run_state_machine_as_test

from hawker.sim.node.kit import SOUND, WorkerKit
from hawker.worker.table import MachineTable
from tests.conformance.bugs import CarelessTable, ForgetfulTable, GrudgingTable
from tests.conformance.model import DESTROYED, STARTED, STOPPED, SUSPENDED, Expected, Lease, Machine
from tests.conformance.two_clients import APP, CLIENTS, Both, Heard
from tests.short_form import short_form

LONG = os.environ.get("JUDGE") == "long"
GUEST, ROOM = {"memory_mb": 512, "cpus": 1, "cpu_kind": "shared"}, 2  # so many of them have room
AFTER = {"start": STARTED, "stop": STOPPED, "restart": STARTED, "suspend": SUSPENDED}
WORDS = ("started", "stopped", "destroyed", "suspended", "failed", "settled")

clients = st.sampled_from(CLIENTS)
nonces = st.sampled_from(("none", "right", "wrong"))
keys, values = st.sampled_from(("a", "b", "fly_process_group")), st.sampled_from(("1", "2", ""))


class TwoClients(RuleBasedStateMachine):
    machines: Bundle[Machine] = Bundle("machines")
    kit: ClassVar[WorkerKit] = SOUND

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="two-clients-"))
        self.both = Both(self.directory, kit=self.kit)
        self.secrets: dict[str, str] = {}
        self.secrets_version = 0
        self.by_key: dict[str, Machine] = {}
        self.all: list[Machine] = []
        assert self.both.call("ann", "POST", "/v1/apps", {"app_name": APP, "org_slug": "personal"}).status == 201

    def teardown(self) -> None:
        self.both.close()
        shutil.rmtree(self.directory)

    # The app.

    @rule(client=clients, ask=st.sampled_from(("name", "secrets", "machines", "nothing")))
    def ask_at_large(self, client: str, ask: str) -> None:
        match ask:
            case "name":
                self.take_the_name_again(client)
            case "secrets":
                self.list_secrets(client)
            case "machines":
                self.list_machines(client)
            case _:
                self.ask_for_what_never_was(client)

    def take_the_name_again(self, client: str) -> None:
        heard = self.both.call(client, "POST", "/v1/apps", {"name": APP, "org_slug": "personal"})
        agree(heard, Expected(422, "Name has already been taken"))
        assert heard.body["status"] == "name_taken"

    @rule(client=clients, name=keys, value=st.sampled_from(("x", "y", None)))
    def set_secret(self, client: str, name: str, value: str | None) -> None:
        heard = self.both.call(client, "POST", f"/v1/apps/{APP}/secrets", {"values": {name: value}})
        agree(heard, Expected(200))
        assert heard.body["version"] == heard.body["Version"] > self.secrets_version, "versions count up"
        self.secrets_version = heard.body["version"]
        self.secrets = {key: old for key, old in {**self.secrets, name: value}.items() if old is not None}
        assert {secret["name"] for secret in heard.body["secrets"]} <= {name, *self.secrets}

    def list_secrets(self, client: str) -> None:
        heard = self.both.call(client, "GET", f"/v1/apps/{APP}/secrets?show_secrets=true")
        assert {secret["name"]: secret["value"] for secret in heard.body["secrets"]} == self.secrets

    @rule(client=clients, ahead=st.integers(0, 1))
    def ask_for_a_version_of_the_secrets(self, client: str, ahead: int) -> None:
        heard = self.both.call(client, "GET", f"/v1/apps/{APP}/secrets?version={self.secrets_version + ahead}")
        agree(heard, Expected(412, "not known here") if ahead else Expected(200))

    # Machines.

    @rule(
        target=machines,
        client=clients,
        launch=st.booleans(),
        ttl=st.sampled_from((None, 13)),
        key=st.sampled_from((None, "k1", "k2")),
    )
    def create(self, client: str, launch: bool, ttl: int | None, key: str | None) -> Any:
        return self.made(client, launch, ttl, key) or multiple()

    @initialize(target=machines, launch=st.booleans())
    def open_the_shop(self, launch: bool) -> Any:
        """Two machines are there from the beginning, or most calls would be about none."""
        return multiple(self.made("ann", launch), self.made("bob", not launch))

    @rule(client=clients, machine=machines)
    def show(self, client: str, machine: Machine) -> None:
        heard = self.on(client, machine, "GET", "?include_leases=true")
        agree(heard, Expected(200))
        body = heard.body
        assert (body["state"], body["version"], body["instance_id"]) == (
            machine.state,
            machine.version,
            machine.version,
        )
        assert (body["config"].get("metadata") or {}) == machine.metadata
        assert body.get("cordoned", False) == machine.cordoned and "nonce" not in body and body["config"]["guest"]
        lease = machine.held(self.both.now())
        assert body.get("lease", {}).get("owner") == (lease.owner if lease else None)

    @rule(client=clients, machine=machines)
    def list_versions(self, client: str, machine: Machine) -> None:
        heard = self.on(client, machine, "GET", "/versions")
        assert [each["version"] for each in heard.body] == machine.versions[::-1]

    def list_machines(self, client: str) -> None:
        heard = self.both.call(client, "GET", f"/v1/apps/{APP}/machines")
        there = {machine.id: machine.state for machine in self.all if machine.state != DESTROYED}
        assert {each["id"]: each["state"] for each in heard.body} == there

    def ask_for_what_never_was(self, client: str) -> None:
        agree(
            self.both.call(client, "GET", f"/v1/apps/{APP}/machines/00000000000000"), Expected(404, "machine not found")
        )
        agree(self.both.call(client, "GET", "/v1/apps/none/machines"), Expected(404, "app not found"))

    @rule(client=clients, machine=machines, nonce=nonces, operation=st.sampled_from(tuple(AFTER)))
    def operate(self, client: str, machine: Machine, nonce: str, operation: str) -> None:
        given = self.nonce(machine, nonce)
        expected = machine.may(operation, given, self.both.now())
        if expected.status == 200 and AFTER[operation] == STARTED and machine.state == STOPPED and self.is_full():
            expected = Expected(409, "could not reserve resource for machine")
        heard = self.on(client, machine, "POST", f"/{operation}", nonce=given)
        agree(heard, expected)
        if expected.status == 200:
            started = {"previous_state": machine.state, "migrated": False, "new_host": ""}
            said = {"start": started, "suspend": {"ok": True, "kind": "freeze"}}
            assert heard.body == said.get(operation, {"ok": True})
            machine.settle(AFTER[operation])

    @rule(
        client=clients,
        machine=machines,
        nonce=nonces,
        how=st.sampled_from(("", "?force=true", "?kill=true", "?kill=false")),
    )
    def destroy(self, client: str, machine: Machine, nonce: str, how: str) -> None:
        given = self.nonce(machine, nonce)
        expected = machine.may("destroy", given, self.both.now(), force=how.endswith("=true"))
        agree(self.on(client, machine, "DELETE", how, nonce=given), expected)
        if expected.status == 200:
            machine.settle(DESTROYED)

    @rule(
        client=clients,
        machine=machines,
        nonce=nonces,
        launch=st.booleans(),
        guard=st.sampled_from((None, "current", "stale")),
    )
    def update(self, client: str, machine: Machine, nonce: str, launch: bool, guard: str | None) -> None:
        given, now = self.nonce(machine, nonce), self.both.now()
        current = {None: None, "current": machine.version, "stale": "01" + "0" * 24}[guard]
        expected = machine.update(given, now, current)
        if expected.status == 200 and launch and machine.state == STOPPED and self.is_full():
            expected = Expected(409, "could not reserve resource for machine")
        config = {
            "image": "hawker/hello",
            "guest": GUEST,
            "metadata": machine.metadata,
            "env": {"N": str(len(machine.versions))},
        }
        body = {"config": config, "skip_launch": not launch, "current_version": current}
        heard = self.on(client, machine, "POST", "", body, nonce=given)
        agree(heard, expected)
        if expected.status == 200:
            assert heard.body["version"] > machine.version and "nonce" not in heard.body
            machine.versions.append(heard.body["version"])
            machine.settle(STARTED if launch else STOPPED)

    @rule(client=clients, machine=machines, nonce=nonces, word=st.sampled_from(("cordon", "uncordon")))
    def cordon(self, client: str, machine: Machine, nonce: str, word: str) -> None:
        given = self.nonce(machine, nonce)
        expected = machine.may(word, given, self.both.now())
        agree(self.on(client, machine, "POST", f"/{word}", nonce=given), expected)
        if expected.status == 200:
            machine.cordoned = word == "cordon"

    @rule(client=clients, machine=machines, nonce=nonces, number=st.sampled_from(("HUP", 28, "SIGWINCH")))
    def signal(self, client: str, machine: Machine, nonce: str, number: str | int) -> None:
        expected = machine.may("signal", None, self.both.now())
        agree(self.on(client, machine, "POST", "/signal", {"signal": 0}), Expected(400, "signal"))
        if number != "HUP":
            agree(
                self.on(client, machine, "POST", "/signal", {"signal": number}, nonce=self.nonce(machine, nonce)),
                expected,
            )

    @rule(client=clients, machine=machines, nonce=nonces)
    def exec(self, client: str, machine: Machine, nonce: str) -> None:
        given = self.nonce(machine, nonce)
        heard = self.on(client, machine, "POST", "/exec", {"command": ["echo", "hi"]}, nonce=given)
        agree(heard, machine.may("exec", given, self.both.now()))
        if heard.status == 200:
            assert (heard.body["exit_code"], heard.body["stdout"]) == (0, "hi\n")

    @rule(
        client=clients,
        machine=machines,
        words=st.lists(st.sampled_from(WORDS), max_size=2),
        version=st.sampled_from((None, "current", "first", "later")),
    )
    def wait(self, client: str, machine: Machine, words: list[str], version: str | None) -> None:
        bound = {None: None, "current": machine.version, "first": machine.versions[0], "later": "7" + "Z" * 25}[version]
        query = f"?timeout=1&state={','.join(words)}" + (f"&version={bound}" if bound else "")
        heard = self.on(client, machine, "GET", f"/wait{query}")
        agree(heard, machine.waited(words or ["started"], bound))
        if heard.status == 200:
            assert (heard.body["ok"], heard.body["state"], heard.body["version"]) == (
                True,
                machine.state,
                machine.version,
            )

    # Leases and metadata.

    @rule(client=clients, machine=machines, nonce=nonces, ttl=st.sampled_from((5, 3600)), in_query=st.booleans())
    def take_lease(self, client: str, machine: Machine, nonce: str, ttl: int, in_query: bool) -> None:
        given, now = self.nonce(machine, nonce), self.both.now()
        path, body = (f"/lease?ttl={ttl}", None) if in_query else ("/lease", {"ttl": ttl})
        expected = machine.may("lease", given, now)
        heard = self.on(client, machine, "POST", path, body, nonce=given)
        agree(heard, expected)
        if expected.status == 201:
            held, data = machine.held(now), heard.body["data"]
            assert heard.body["status"] == "success" and data["version"] == machine.version
            assert held is None or (data["nonce"], data["owner"]) == (held.nonce, held.owner), "a refresh keeps both"
            assert heard.body["nonce"] == data["nonce"], "flat as well as in the envelope"
            machine.lease = Lease(data["nonce"], data["owner"], now + ttl)

    @rule(client=clients, machine=machines, nonce=nonces)
    def release_lease(self, client: str, machine: Machine, nonce: str) -> None:
        given = self.nonce(machine, nonce)
        expected = machine.release(given, self.both.now())
        heard = self.on(client, machine, "DELETE", "/lease", nonce=given)
        agree(heard, expected)
        if expected.status == 200:
            assert heard.body == {"status": "success", "data": {"ok": True}}
            machine.lease = None

    @rule(client=clients, machine=machines)
    def show_lease(self, client: str, machine: Machine) -> None:
        held = machine.held(self.both.now())
        heard = self.on(client, machine, "GET", "/lease")
        agree(heard, Expected(200) if held else Expected(404, "lease not found"))
        if held:
            assert heard.body["data"]["nonce"] == held.nonce

    @rule(client=clients, machine=machines, key=keys, value=values)
    def set_metadata(self, client: str, machine: Machine, key: str, value: str) -> None:
        heard = self.on(client, machine, "POST", f"/metadata/{key}", {"value": value})
        self.metadata_changed(machine, heard, {key: value})

    @rule(
        client=clients,
        machine=machines,
        changes=st.dictionaries(keys, values | st.none()),
        stale=st.booleans(),
        put=st.booleans(),
    )
    def change_metadata(
        self, client: str, machine: Machine, changes: dict[str, str | None], stale: bool, put: bool
    ) -> None:
        version = "01" + "0" * 24 if stale else machine.version
        body = {"metadata": changes, "machine_version": version}
        heard = self.on(client, machine, "PUT" if put else "PATCH", "/metadata", body)
        if stale and machine.state != DESTROYED:
            agree(heard, Expected(412, "stale"))
        else:
            self.metadata_changed(machine, heard, changes)

    @rule(client=clients, machine=machines, key=keys)
    def delete_metadata(self, client: str, machine: Machine, key: str) -> None:
        self.metadata_changed(machine, self.on(client, machine, "DELETE", f"/metadata/{key}"), {key: None})

    @rule(client=clients, machine=machines, key=keys)
    def show_metadata(self, client: str, machine: Machine, key: str) -> None:
        assert self.on(client, machine, "GET", "/metadata").body == machine.metadata
        heard = self.on(client, machine, "GET", f"/metadata/{key}")
        there = machine.metadata.get(key)
        assert (heard.status, there) == (404, None) or heard.body == {"value": there}

    @rule(seconds=st.sampled_from((1.0, 6.0, 60.0)))
    def let_time_pass(self, seconds: float) -> None:
        self.both.wait(seconds)

    def made(self, client: str, launch: bool, ttl: int | None = None, key: str | None = None) -> Machine | None:
        """A new one, if there is to be one."""
        if sum(machine.state != DESTROYED for machine in self.all) >= 4:
            return None
        order = {"config": {"image": "hawker/hello", "guest": GUEST}}
        body = {**order, "skip_launch": not launch, **({"lease_ttl": ttl} if ttl else {})}
        full = self.is_full()
        heard = self.both.call(
            client, "POST", f"/v1/apps/{APP}/machines", body, **({"idempotency_key": key} if key else {})
        )
        made = self.by_key.get(key or "")
        if made is not None:
            agree(heard, Expected(200))
            assert heard.body["id"] == made.id, "the same key answers with what it made"
            return None
        if launch and full:
            agree(heard, Expected(422, "could not find a candidate host"))
            assert heard.body["status"] == "insufficient_capacity"
            return None
        agree(heard, Expected(200))
        machine = Machine(heard.body["id"], STARTED if launch else STOPPED, [heard.body["version"]])
        assert ("nonce" in heard.body) == bool(ttl), "only a create with a lease_ttl shows a nonce"
        if ttl:
            machine.lease = Lease(heard.body["nonce"], client, self.both.now() + ttl)
        if key:
            self.by_key[key] = machine
        self.all.append(machine)
        return machine

    def is_full(self) -> bool:
        return sum(machine.has_room for machine in self.all) >= ROOM

    def metadata_changed(self, machine: Machine, heard: Heard, changes: dict[str, Any]) -> None:
        """Metadata needs no lease and makes no version (3.2, 3.4)."""
        expected = machine.may("metadata", None, self.both.now())
        agree(heard, expected)
        if expected.status == 204:
            machine.metadata = {key: value for key, value in {**machine.metadata, **changes}.items() if value}

    def nonce(self, machine: Machine, which: str) -> str | None:
        right = machine.lease.nonce if machine.lease else "0" * 16
        return {"none": None, "right": right, "wrong": "f" * 16}[which]

    def on(
        self, client: str, machine: Machine, method: str, rest: str, body: Any = None, *, nonce: str | None = None
    ) -> Heard:
        return self.both.call(client, method, f"/v1/apps/{APP}/machines/{machine.id}{rest}", body, nonce=nonce)


def agree(heard: Heard, expected: Expected) -> None:
    assert heard.status == expected.status and expected.text in heard.text, f"{heard} is not {expected}"


def _settings(examples: int, steps: int) -> settings:
    """Not shrunk: a failure says what was asked and answered."""
    return settings(
        phases=[Phase.generate],
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=not LONG,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def test_every_answer_is_what_the_model_says() -> None:
    run_state_machine_as_test(TwoClients, settings=_settings(*((400, 100) if LONG else (60, 60))))


@pytest.mark.parametrize(
    "table",
    short_form(
        [GrudgingTable, ForgetfulTable, CarelessTable],
        lambda table: table is CarelessTable,
        "seconds until it is found; another bug is the short form",
    ),
)
def test_the_model_objects_to_a_bug(table: type[MachineTable]) -> None:
    class Bugged(TwoClients):
        kit = WorkerKit(table=table)

    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(Bugged, settings=_settings(400, 60))  # ends with the first that shows it
