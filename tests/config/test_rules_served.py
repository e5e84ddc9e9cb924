"""Every row of the table of what is not served: asking for it is refused by name, asking for nothing is not."""

from typing import Any

import msgspec
import pytest

from hawker.config import MachineConfig
from hawker.config.rules import NOT_SERVED, UnservedField, not_served

SAMPLES: dict[str, Any] = {
    "mounts": [{"path": "/data", "add_size_percent": 10, "min_add_size_gb": 1}],
    "volumes": [{"name": "v", "image": "i"}],
    "containers": [{"name": "c", "files": [{"image_config": "i"}], "restart": {"gpu_bid_price": 0.1}}],
    "cache_drive": {"size_mb": 1},
    "spot": {"max_price_fraction": 0.5},
    "restart": {"gpu_bid_price": 0.1},
}


def _ask(entry: UnservedField) -> dict[str, Any]:
    """A config that asks for one row of the table."""
    top, _, rest = entry.path.partition(".")
    name = top.rstrip("[]{}")
    if name in ("dns", "guest", "rootfs") and rest:
        return {name: {rest: _value(rest)}}
    return {name: SAMPLES[name]}


def _value(field: str) -> Any:
    if field in {"kernel_args", "required_host_features"}:
        return ["a"]
    if field == "dns_forward_rules":
        return [{"addr": "a"}]
    return 1 if field in {"max_memory_mb", "gpus", "size_gb"} else "always"


@pytest.mark.parametrize("entry", NOT_SERVED, ids=lambda entry: entry.path)
def test_asking_for_what_is_not_served_is_found_by_its_path(entry: UnservedField) -> None:
    config = msgspec.convert(_ask(entry), MachineConfig)
    found = [path for path, reason in not_served(config) if reason == entry.reason]
    assert found, "the row finds nothing"
    wanted = entry.path.replace("[]", "[0]").replace("{}", ".web")
    assert wanted in found


NOTHING: list[dict[str, Any]] = [
    {"init": {}, "services": [], "mounts": [], "containers": [], "standbys": [], "statics": [], "volumes": []},
    {"metrics": {}, "cache_drive": {}, "spot": {}, "rootfs": {}, "dns": {}, "guest": {}, "restart": {}},
    {"schedule": None, "services": None, "rootfs": None},
    {"rootfs": {"persist": "never", "size_gb": 0}, "guest": {"persist_rootfs": "never", "gpus": 0}},
    {"guest": {"persist_rootfs": 0}, "cache_drive": {"size_mb": 0}, "init": {"swap_size_mb": 0, "kernel_args": []}},
    {"dns": {"skip_registration": True}, "disable_machine_autostart": True},
    {"processes": [{"ignore_app_secrets": True, "secrets": []}], "files": [{"secret_name": ""}]},
    {"checks": {"a": {"kind": "readiness", "tls_server_name": ""}}},
]


@pytest.mark.parametrize("given", NOTHING)
def test_nothing_in_the_words_of_any_client_asks_for_nothing(given: dict[str, Any]) -> None:
    assert list(not_served(msgspec.convert(given, MachineConfig))) == []


def test_every_path_of_the_table_leads_somewhere() -> None:
    for entry in NOT_SERVED:
        assert entry.path.partition(".")[0].rstrip("[]{}") in MachineConfig.__struct_fields__
