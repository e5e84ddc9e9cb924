"""What the commands of flyctl ask of a node, call by call and in words of our own: the commands of the table, without
the client."""

from collections.abc import Iterator
from copy import copy
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from tests.clients.flyctl_app import LAUNCHED_BY_FLYCTL
from tests.clients.flyctl_table import ROWS
from tests.clients.wire import Wire, wire_to
from tests.e2e.running_node import RunningNode
from tests.flyfront.asked import ask, errors_of
from tests.waiting import wait_for

NAME = "table"
APP = "query ($name: String!) { app(name: $name) { "
DEFINITION = {"app": NAME, "primary_region": "local"}
LEASE_S = 120
"""The client asks for 13 s, and again before they are over."""


class Client:
    """An app, deployed as the client does it: a release, machines under leases, the release's end."""

    def __init__(self, wire: Wire, sleeper: dict[str, Any]) -> None:
        self.wire, self.sleeper = wire, sleeper
        self.machines = f"/v1/apps/{NAME}/machines"
        wire.ask("POST", "/v1/apps", {"app_name": NAME, "org_slug": "personal"}, status=201)

    def app(self, fields: str) -> Any:
        return ask(self.wire, APP + fields + " } }", name=NAME)["app"]

    def release(self, strategy: str) -> str:
        digest = ask(self.wire, APP + 'image(ref: "hawker/hello") { digest ref } } }', name=NAME)["app"]["image"]
        assert digest["digest"].startswith("sha256:")
        body = {"app_name": NAME, "image": digest["ref"], "strategy": strategy, "definition": DEFINITION}
        made = self.wire.ask("POST", "/api/v1/releases", body, status=201)["release"]
        self.wire.ask("PATCH", f"/api/v1/releases/{made['id']}", {"status": "running"})
        return str(made["id"])

    def ends(self, release: str, status: str) -> None:
        assert self.wire.ask("PATCH", f"/api/v1/releases/{release}", {"status": status})["status"] == status

    def create(self, *, group: str = "app", skip_launch: bool = False, **config: Any) -> str:
        metadata = LAUNCHED_BY_FLYCTL | {"fly_process_group": group}
        body = {"config": self.sleeper | {"metadata": metadata} | config, "skip_launch": skip_launch, "region": "local"}
        return str(self.wire.ask("POST", self.machines, body)["id"])

    def waits(self, machine: str, state: str) -> None:
        self.wire.waits(f"{self.machines}/{machine}", state)

    def updates(self, machine: str, release: str, *, waits: bool = True, **config: Any) -> None:
        """Under a lease that is given back."""
        lease = self.wire.ask("POST", f"{self.machines}/{machine}/lease", {"ttl": LEASE_S}, status=201)["data"]["nonce"]
        metadata = LAUNCHED_BY_FLYCTL | {"fly_release_id": release}
        body = {"config": self.sleeper | {"metadata": metadata} | config}
        self.wire.ask("POST", f"{self.machines}/{machine}", body, fly_machine_lease_nonce=lease)
        if waits:
            self.waits(machine, "started")
        self.wire.ask("DELETE", f"{self.machines}/{machine}/lease", fly_machine_lease_nonce=lease)

    def destroys(self, machine: str) -> None:
        self.wire.ask("DELETE", f"{self.machines}/{machine}?force=true")
        self.waits(machine, "destroyed")

    def shown(self, machine: str) -> dict[str, Any]:
        return dict(self.wire.ask("GET", f"{self.machines}/{machine}"))

    def there(self) -> list[str]:
        return [each["id"] for each in self.wire.ask("GET", self.machines)]


def with_token(client: Client, wire: Wire) -> Client:
    """The same app, asked by who has another token."""
    other = copy(client)
    other.wire = wire
    return other


@pytest.fixture(scope="module")
def client(node: RunningNode, sleeper: dict[str, Any]) -> Iterator[Client]:
    """With two machines of release 1."""
    client = Client(wire_to(node), sleeper)
    release = client.release("ROLLING")
    for machine in [client.create(), client.create()]:
        client.waits(machine, "started")
    client.ends(release, "complete")
    yield client
    client.wire.send("DELETE", f"/v1/apps/{NAME}")


def test_whoami_and_organizations(client: Client) -> None:
    assert "@" in ask(client.wire, "{ viewer { __typename ... on User { email } } }")["viewer"]["email"]
    found = ask(client.wire, "{ organizations { nodes { slug name type } } }")["organizations"]["nodes"]
    assert {"slug": "personal", "name": "personal", "type": "PERSONAL"} in found


def test_a_name_that_is_taken_is_refused_in_the_words_that_the_client_shows(client: Client) -> None:
    answer = client.wire.send("POST", "/v1/apps", b'{"app_name": "table", "org_slug": "personal"}')
    assert answer.status == 422 and "already been taken" in answer.json["error"]
    query = "mutation ($input: CreateAppInput!) { createApp(input: $input) { app { id } } }"
    taken = errors_of(client.wire, query, input={"name": NAME, "organizationId": "personal"})
    assert "already been taken" in taken[0]


def test_a_rolling_deploy_updates_each_machine_under_its_lease(client: Client) -> None:
    before, release = client.there(), client.release("ROLLING")
    for machine in before:
        client.updates(machine, release)
    client.ends(release, "complete")
    assert client.there() == before


def test_a_bluegreen_deploy_leaves_as_many_machines_with_other_ids(client: Client) -> None:
    assert ask(client.wire, '{ canPerformBluegreenDeployment(name: "table") }')["canPerformBluegreenDeployment"]
    blue, release = client.there(), client.release("BLUEGREEN")
    green = [client.create() for _ in blue]
    for machine in green:
        client.waits(machine, "started")
    for machine in blue:
        client.wire.ask("POST", f"{client.machines}/{machine}/cordon")
        client.destroys(machine)
    client.ends(release, "complete")
    assert sorted(client.there()) == sorted(green)


def test_a_canary_is_gone_once_the_others_have_the_release(client: Client) -> None:
    before, release = client.there(), client.release("CANARY")
    canary = client.create()
    client.waits(canary, "started")
    client.destroys(canary)
    for machine in before:
        client.updates(machine, release)
    client.ends(release, "complete")
    assert client.there() == before


def test_an_immediate_deploy_need_not_wait_for_a_machine_before_it_takes_the_next(client: Client) -> None:
    release = client.release("IMMEDIATE")
    for machine in client.there():
        client.updates(machine, release, waits=False)
    client.ends(release, "complete")
    for machine in client.there():
        client.waits(machine, "started")
        assert client.shown(machine)["config"]["metadata"]["fly_release_id"] == release


def test_a_release_command_that_fails_is_seen_by_its_event_and_its_log_and_changes_no_machine(client: Client) -> None:
    before, release = client.there(), client.release("ROLLING")
    init, group = {"exec": ["/nosuch"]}, "fly_app_release_command"
    command = client.create(group=group, skip_launch=True, init=init, auto_destroy=False, restart={"policy": "no"})
    client.waits(command, "stopped")
    client.wire.ask("POST", f"{client.machines}/{command}/start")

    def ended() -> list[dict[str, Any]]:
        events = client.wire.ask("GET", f"{client.machines}/{command}")["events"]
        return [each for each in events if each["type"] == "exit"]

    wait_for(lambda: bool(ended()))
    assert ended()[0]["request"]["exit_event"]["exit_code"] != 0
    path = f"/api/v1/apps/{NAME}/logs?instance={command}"
    wait_for(
        lambda: any("Main child" in each["attributes"]["message"] for each in client.wire.ask("GET", path)["data"])
    )
    client.destroys(command)
    kept = [each["attributes"]["message"] for each in client.wire.ask("GET", path)["data"]]
    assert any("Main child" in each for each in kept)
    client.ends(release, "failed")
    assert client.there() == before


def test_status_releases_and_config(client: Client) -> None:
    shown = client.app(
        "name status platformVersion version machines { nodes { id state config } } imageDetails { tag }"
    )
    assert (shown["name"], shown["platformVersion"]) == (NAME, "machines") and shown["version"] >= 1
    assert {each["state"] for each in shown["machines"]["nodes"]} == {"started"}
    releases = client.app("releasesUnprocessed(first: 25) { nodes { version status imageRef user { email } } }")
    assert "complete" in {each["status"] for each in releases["releasesUnprocessed"]["nodes"]}
    current = client.app("currentReleaseUnprocessed { configDefinition version }")["currentReleaseUnprocessed"]
    assert current["configDefinition"] == DEFINITION
    ref = client.shown(client.there()[0])["image_ref"]
    assert (ref["repository"], ref["tag"], ref["digest"][:7]) == ("hawker/hello", "latest", "sha256:")


def test_launch_without_a_deploy_makes_an_app_and_asks_what_it_needs_for_its_file(client: Client) -> None:
    query = "mutation ($input: CreateAppInput!) { createApp(input: $input) { app { name organization { slug } } } }"
    made = ask(client.wire, query, input={"name": "launched", "organizationId": "personal"})["createApp"]["app"]
    assert made == {"name": "launched", "organization": {"slug": "personal"}}
    assert ask(client.wire, "{ platform { requestRegion regions { code } } }")["platform"]["regions"]
    wanted = {
        "compute": {"cpu_kind": "shared", "cpus": 1, "memory_mb": 256},
        "region": "",
        "count": 2,
        "volume_name": "",
        "volume_size_bytes": 0,
        "weights": None,
        "org_slug": "personal",
    }
    placed = client.wire.ask("POST", "/v1/platform/placements", wanted)["regions"]
    assert [(each["region"], each["count"] >= 2) for each in placed] == [("local", True)]
    assert client.wire.ask("GET", "/v1/apps/launched")["name"] == "launched"
    client.wire.ask("DELETE", "/v1/apps/launched", status=202)


def test_scale_vm_and_memory_change_each_machine_in_place(client: Client) -> None:
    before, release = client.there(), client.release("ROLLING")
    guest = {"cpu_kind": "shared", "cpus": 1, "memory_mb": 512}
    for machine in before:
        client.updates(machine, release, guest=guest)
        assert client.shown(machine)["config"]["guest"]["memory_mb"] == 512
    client.ends(release, "complete")
    assert client.there() == before


@pytest.mark.root
def test_a_staged_secret_reaches_a_machine_with_its_next_update_and_not_before(client: Client) -> None:
    """`secrets set --stage`, then `secrets deploy`."""
    machine, path = client.there()[0], f"/v1/apps/{NAME}/secrets"
    ask_env = {"command": ["/bin/hello", "env"], "timeout": 60}

    def env() -> list[str]:
        return str(client.wire.ask("POST", f"{client.machines}/{machine}/exec", ask_env)["stdout"]).splitlines()

    version = client.wire.ask("POST", path, {"values": {"STAGED": "yes"}})["version"]
    assert env() and "STAGED=yes" not in env()
    lease = client.wire.ask("POST", f"{client.machines}/{machine}/lease", {"ttl": LEASE_S}, status=201)["data"]["nonce"]
    body = {"config": client.shown(machine)["config"], "min_secrets_version": version}
    client.wire.ask("POST", f"{client.machines}/{machine}", body, fly_machine_lease_nonce=lease)
    client.waits(machine, "started")
    client.wire.ask("DELETE", f"{client.machines}/{machine}/lease", fly_machine_lease_nonce=lease)
    assert "STAGED=yes" in env()
    client.wire.ask("POST", path, {"values": {"STAGED": None}})


def test_machine_run_update_clone_and_destroy(client: Client) -> None:
    machine = client.create(env={"A": "1"})
    client.waits(machine, "started")
    client.updates(machine, "none", env={"A": "2"})
    config = client.shown(machine)["config"]
    assert config["env"] == {"A": "2"}
    body = {"config": config, "region": "local"}
    clone = client.wire.ask("POST", client.machines, body)["id"]
    client.waits(clone, "started")
    assert client.shown(clone)["config"]["env"] == {"A": "2"}
    for each in (clone, machine):
        client.destroys(each)
    assert not {clone, machine} & set(client.there())


def test_scale_count_makes_one_more_and_secrets_are_set_listed_and_unset(client: Client) -> None:
    count = len(client.there())
    more = client.create()
    client.waits(more, "started")
    assert len(client.there()) == count + 1
    client.destroys(more)
    path = f"/v1/apps/{NAME}/secrets"
    client.wire.ask("POST", path, {"values": {"A": "1"}})
    assert [each["name"] for each in client.wire.ask("GET", path)["secrets"]] == ["A"]
    client.wire.ask("POST", path, {"values": {"A": None}})
    assert client.wire.ask("GET", path)["secrets"] == []


def test_addresses_regions_and_tokens(client: Client) -> None:
    query = "mutation ($input: AllocateIPAddressInput!) { allocateIpAddress(input: $input) { ipAddress { address } } }"
    made = ask(client.wire, query, input={"appId": NAME, "type": "private_v6"})["allocateIpAddress"]["ipAddress"]
    listed = client.app("ipAddresses { nodes { address type } }")["ipAddresses"]["nodes"]
    assert {"address": made["address"], "type": "private_v6"} in listed
    client.wire.ask("DELETE", f"/v1/apps/{NAME}/ip_assignments/{made['address']}", status=204)
    shared = (
        "mutation ($input: AllocateIPAddressInput!) { allocateIpAddress(input: $input) { app { sharedIpAddress } } }"
    )
    given = ask(client.wire, shared, input={"appId": NAME, "type": "shared_v4"})["allocateIpAddress"]["app"]
    assert given["sharedIpAddress"] and client.app("sharedIpAddress") == given
    assert ask(client.wire, "{ platform { regions { code name } } }")["platform"]["regions"]
    query = (
        "mutation ($input: CreateLimitedAccessTokenInput!) "
        "{ createLimitedAccessToken(input: $input) { limitedAccessToken { tokenHeader } } }"
    )
    params = {"app_id": NAME}
    wanted = {"name": "t", "organizationId": "personal", "profile": "deploy", "profileParams": params, "expiry": "1h"}
    token = ask(client.wire, query, input=wanted)["createLimitedAccessToken"]["limitedAccessToken"]["tokenHeader"]
    narrowed = Wire(client.wire.host, client.wire.port, token.removeprefix("Bearer "))
    client.wire.ask("POST", "/v1/apps", {"app_name": "other", "org_slug": "personal"}, status=201)
    its_own = with_token(client, narrowed)
    release = its_own.release("ROLLING")
    for machine in its_own.there():
        its_own.updates(machine, release)
    its_own.ends(release, "complete")
    assert narrowed.send("GET", "/v1/apps/other/machines").status in (403, 404)
    order = msgspec.json.encode({"app_name": "other", "image": "hawker/hello", "strategy": "ROLLING"})
    assert narrowed.send("POST", "/api/v1/releases", order).status in (403, 404)
    client.wire.ask("DELETE", "/v1/apps/other", status=202)


def test_logs_end_for_who_does_not_follow_and_go_on_for_who_does(client: Client) -> None:
    """The way over a tunnel, which the client tries first, fails at once."""
    path = f"/api/v1/apps/{NAME}/logs"
    last = client.wire.ask("GET", path)
    assert last["data"] and last["meta"]["next_token"]
    peers = "mutation ($input: ValidateWireGuardPeersInput!) { validateWireGuardPeers(input: $input) { validPeerIps } }"
    assert errors_of(client.wire, peers, input={"peerIps": []})
    machine = client.create()
    found, token = list[str](), last["meta"]["next_token"]
    while not any(each == machine for each in found):
        answer = client.wire.ask("GET", f"{path}?next_token={quote(token)}")
        found += [each["attributes"]["instance"] for each in answer["data"]]
        token = answer["meta"]["next_token"]
    client.waits(machine, "started")
    client.destroys(machine)


def test_destroying_an_app_takes_its_machines_along(client: Client) -> None:
    """Last: it is the app of all others."""
    client.wire.ask("DELETE", f"/v1/apps/{NAME}", status=202)
    assert client.wire.send("GET", f"/v1/apps/{NAME}").status == 404


def test_the_table_names_each_command_group_that_the_calls_stand_for() -> None:
    groups = {row.command.split()[0] for row in ROWS}
    assert groups >= {
        "auth",
        "orgs",
        "apps",
        "deploy",
        "status",
        "releases",
        "config",
        "scale",
        "secrets",
        "logs",
        "ips",
        "launch",
        "machine",
        "volumes",
        "tokens",
    }
