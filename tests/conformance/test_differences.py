"""Each place where the official document and the wire differ: the wire's side is what a node answers."""

from collections.abc import Iterator

import pytest

from tests.conformance.differences import DIFFERENCES
from tests.conformance.stock import APP, HELLO, ORG, Answer, Stock
from tests.e2e.running_node import running_node


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    with running_node(tmp_path_factory.mktemp("differences"), "--ephemeral", "--no-rate-limits") as node:
        yield Stock(node)


def call(stock: Stock, method: str, rest: str, body: object = None, nonce: str = "") -> Answer:
    """About the machine in stock."""
    machine_id = stock.names(f"/apps/{{app_name}}/machines/{{machine_id}}{rest.partition('?')[0]}")["machine_id"]
    return stock.ask(method, f"/v1/apps/{APP}/machines/{machine_id}{rest}", body, nonce)


def test_a_lease_is_in_an_envelope_and_flat(stock: Stock) -> None:
    taken = call(stock, "POST", "/lease", {"ttl": 60})
    assert (taken.status, taken.body["status"]) == (201, "success")
    assert {name: taken.body[name] for name in taken.body["data"]} == taken.body["data"]


def test_b_release_says_ok(stock: Stock) -> None:
    machine_id = stock.names("/apps/{app_name}/machines/{machine_id}/lease")["machine_id"]
    nonce = stock.nonce(machine_id)
    released = stock.ask("DELETE", f"/v1/apps/{APP}/machines/{machine_id}/lease", nonce=nonce)
    assert released == Answer(200, {"status": "success", "data": {"ok": True}})


def test_c_start_answers_a_body(stock: Stock) -> None:
    assert set(call(stock, "POST", "/start").body) == {"previous_state", "migrated", "new_host"}


@pytest.mark.parametrize("operation", ["cordon", "uncordon", "stop", "restart"])
def test_d_operations_say_ok(stock: Stock, operation: str) -> None:
    assert call(stock, "POST", f"/{operation}") == Answer(200, {"ok": True})


@pytest.mark.parametrize(("given", "shown"), [("off", False), ("stop", True), ("suspend", "suspend"), (True, True)])
def test_e_autostop_is_a_word_or_a_bool(stock: Stock, given: object, shown: object) -> None:
    stock.names("/apps/{app_name}")
    service = {"protocol": "tcp", "internal_port": 80, "autostop": given, "ports": [{"port": 80}]}
    order = {"config": {"image": HELLO, "services": [service]}, "skip_launch": True}
    made = stock.ask("POST", f"/v1/apps/{APP}/machines", order)
    assert made.body["config"]["services"][0]["autostop"] == shown


def test_f_g_p_an_app_may_be_called_app_name_and_is_answered_whole(stock: Stock) -> None:
    body = {"app_name": "other", "org_slug": ORG, "app_role_id": ""}
    made = stock.ask("POST", "/v1/apps?wait=true", body)
    assert made.status == 201 and made.body["name"] == "other" and made.body["created_at"] > 10**12
    assert {"id", "name", "network", "status", "machine_count", "organization"} <= set(made.body)
    stock.ask("DELETE", "/v1/apps/other")


@pytest.mark.parametrize("query", ["?kill=true", "?force=true"])
def test_h_a_machine_is_destroyed_by_either_word(stock: Stock, query: str) -> None:
    assert call(stock, "DELETE", query) == Answer(200, {"ok": True})


def test_i_a_lease_takes_its_time_from_the_query(stock: Stock) -> None:
    assert call(stock, "POST", "/lease/?ttl=13").status == 201


@pytest.mark.parametrize("signal", [28, "WINCH", "SIGWINCH"])
def test_j_a_signal_is_a_name_or_a_number(stock: Stock, signal: object) -> None:
    stock.names("/apps/{app_name}/machines/{machine_id}/signal")
    machine_id = stock.found["machine"]
    assert stock.ask("POST", f"/v1/apps/{APP}/machines/{machine_id}/signal", {"signal": signal}).status == 200


def test_k_a_restart_may_be_forced(stock: Stock) -> None:
    assert call(stock, "POST", "/restart?force_stop=true").status == 200


@pytest.mark.parametrize("word", ["version", "min_version"])
def test_l_secrets_are_read_from_a_version_on(stock: Stock, word: str) -> None:
    stock.names("/apps/{app_name}/secrets/{secret_name}")
    assert stock.ask("GET", f"/v1/apps/{APP}/secrets?{word}=1").status == 200
    assert stock.ask("GET", f"/v1/apps/{APP}/secrets?{word}=999999").status == 412


def test_m_regions_are_capital(stock: Stock) -> None:
    assert {"Regions", "Nearest"} <= set(stock.ask("GET", "/v1/platform/regions").body)


def test_n_a_snapshot_is_answered_with_its_backup(stock: Stock) -> None:
    live = stock.names("/apps/{app_name}/volumes/{volume_id}")
    answer = stock.ask("POST", f"/v1/apps/{APP}/volumes/{live['volume_id']}/snapshots")
    assert answer.status == 200 and "backup" in answer.body["Msg"]


def test_o_r_a_machine_has_a_version_and_shows_no_nonce(stock: Stock) -> None:
    stock.names("/apps/{app_name}")
    made = stock.ask("POST", f"/v1/apps/{APP}/machines", {"config": {"image": HELLO}, "lease_ttl": 30})
    shown = stock.ask("GET", f"/v1/apps/{APP}/machines/{made.body['id']}").body
    assert made.body["nonce"] and "nonce" not in shown
    assert shown["version"] == shown["instance_id"] and shown.get("cordoned", False) is False


def test_q_a_field_that_is_not_honoured_is_named(stock: Stock) -> None:
    stock.names("/apps/{app_name}")
    order = {"config": {"image": HELLO, "spot": {"max_price_fraction": 0.5}}}
    refused = stock.ask("POST", f"/v1/apps/{APP}/machines", order)
    assert refused.status == 422 and "spot" in refused.body["error"]


def test_all_of_them_are_here() -> None:
    names = [name.removeprefix("test_").split("_") for name in globals() if name.startswith("test_")]
    found = {word for words in names for word in words[:3] if len(word) == 1}
    assert found == set(DIFFERENCES)
