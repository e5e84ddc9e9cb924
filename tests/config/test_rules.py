"""The rules of a config: what is accepted, and that each refusal opens with the path of the field."""

from dataclasses import dataclass
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from hawker.config import (
    File,
    Guest,
    Init,
    MachineCheck,
    MachineConfig,
    MachineProcess,
    MachineRestart,
    StopConfig,
    checks,
    complaints,
    file_contents,
    guest,
    restart_policy,
    stop_config,
    validate,
    validate_metadata,
    validate_served,
)
from hawker.config.machine import CacheDrive
from hawker.errors import Unprocessable
from hawker.runtime.driver import Features


@dataclass(frozen=True, slots=True)
class Driver:
    driver: str = "tested"
    rootfs: bool = True
    limits: bool = True
    kernel: bool = True
    lacks_swap: str = ""
    containers: bool = True
    mounts: bool = True
    disks: bool = False
    gpus: bool = True


SERVED = Driver()
PARTS = (MachineConfig, Guest, Init, File, MachineProcess, MachineCheck, MachineRestart, StopConfig)
NAMES = sorted({name for part in PARTS for name in part.__struct_fields__})


def _check(given: dict[str, Any], served: Driver = SERVED) -> None:
    validate(msgspec.convert({"image": "nginx", **given}, MachineConfig), served)


ACCEPTED: list[dict[str, Any]] = [
    {},
    {"guest": {"cpus": 1, "memory_mb": 32}},
    {"guest": {"cpus": 8, "cpu_kind": "performance", "memory_mb": 65536}},
    {"size": "shared-cpu-1x"},
    {"size": "shared-cpu-2x", "guest": {"cpu_kind": "shared", "cpus": 2, "memory_mb": 512}},
    {"env": {"A": "", "my.key": "x=y", "ü": "ü"}},
    {"files": [{"guest_path": "/etc/a b", "raw_value": "aGk=", "mode": 0}]},
    {"processes": [{"cmd": ["a"], "user": "root"}] * 16},
    {"checks": {"web": {"type": "http", "port": 80, "path": "/a?b=c", "headers": [{"name": "A", "values": ["1"]}]}}},
    {"restart": {"policy": "always", "max_retries": 0}},
    {"stop_config": {"signal": "SIGUSR1", "timeout": "5m"}},
    {"metadata": {"fly_platform_version": "v2", "empty": ""}},
]


@pytest.mark.parametrize("given", ACCEPTED)
def test_a_config_of_clients_is_accepted(given: dict[str, Any]) -> None:
    _check(given)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"image": None}, "config.image is required"),
    ({"image": ""}, "config.image is required"),
    ({"image": "a b"}, "config.image has a space"),
    ({"image": "a\n"}, "config.image has a space"),
    ({"image": "a" * 1025}, "config.image is longer"),
    ({"size": "huge"}, "config.size: 'huge' is not one of shared-cpu-1x"),
    ({"size": "shared-cpu-1x", "guest": {"cpus": 4}}, "config.size and config.guest exclude each other"),
    ({"guest": {"cpus": 0}}, "config.guest.cpus must be between 1 and 1024, not 0"),
    ({"guest": {"cpus": -1}}, "config.guest.cpus"),
    ({"guest": {"cpus": 10**30}}, "config.guest.cpus"),
    ({"guest": {"memory_mb": 0}}, "config.guest.memory_mb must be between 32 and 16777216, not 0"),
    ({"guest": {"memory_mb": 2**30}}, "config.guest.memory_mb"),  # a pebibyte
    ({"env": {"": "x"}}, "config.env: '' cannot be the name"),
    ({"env": {"A=B": "x"}}, "config.env: 'A=B' cannot be the name"),
    ({"env": {"A": "\0"}}, "config.env.A has a zero byte"),
    ({"env": {"A": "x" * 131_073}}, "config.env is larger"),
    ({"processes": [{}, {"env": {"": "x"}}]}, r"config.processes\[1\].env"),
    ({"processes": [{}] * 17}, "config.processes has more than 16"),
    ({"processes": [{"user": "\0"}]}, r"config.processes\[0\].user has a zero byte"),
    ({"init": {"cmd": ["a\0"]}}, "config.init has a zero byte"),
    ({"init": {"exec": ["x" * 131_073]}}, "config.init has commands larger"),
    ({"files": [{"guest_path": "etc"}]}, r"config.files\[0\].guest_path must be an absolute path"),
    ({"files": [{}]}, r"config.files\[0\].guest_path"),
    ({"files": [{"guest_path": "/a/../b"}]}, r"config.files\[0\].guest_path"),
    ({"files": [{"guest_path": "/a/"}]}, r"config.files\[0\].guest_path"),
    ({"files": [{"guest_path": "/"}]}, r"config.files\[0\].guest_path"),
    ({"files": [{"guest_path": "/a\0"}]}, r"config.files\[0\].guest_path"),
    ({"files": [{"guest_path": "/a", "mode": 0o10000}]}, r"config.files\[0\].mode"),
    ({"files": [{"guest_path": "/a", "mode": -1}]}, r"config.files\[0\].mode"),
    ({"files": [{"guest_path": "/a", "raw_value": "***"}]}, r"config.files\[0\].raw_value is not base64"),
    ({"files": [{"guest_path": "/a", "raw_value": "ä"}]}, r"config.files\[0\].raw_value is not base64"),
    ({"files": [{"guest_path": "/a", "raw_value": "A" * 1_500_000}]}, "config.files are larger"),
    ({"files": [{"guest_path": f"/{n}"} for n in range(257)]}, "config.files has more than 256"),
    ({"metadata": {"": "x"}}, "config.metadata has an empty key"),
    ({"metadata": {"a": "x" * 65_536}}, "config.metadata is larger"),
    ({"metadata": {f"k{number}": "v" for number in range(1001)}}, "config.metadata has more than 1000 keys"),
    ({"env": {f"K{number}": "" for number in range(2001)}}, "config.env has more than 2000 variables"),
    (
        {"processes": [{"env": {"A": "x" * 65_000, "B": "x" * 60_000}}] * 5},
        "config.env and all other fields, but for the contents of files, are larger than 524288 bytes together",
    ),
    ({"metadata": {"a": "\x01" * 65_000}}, "config.metadata is larger than 131072 bytes as JSON"),
    ({"checks": {"n" * 256: {"type": "tcp", "port": 1}}}, "config.checks: a name may have 255 characters"),
    ({"checks": {"servicecheck-00-tcp-1": {"type": "tcp", "port": 1}}}, "config.checks.servicecheck-00-tcp-1: names"),
    ({"checks": {str(n): {"type": "tcp", "port": 1} for n in range(17)}}, "config.checks has more than 16"),
    ({"restart": {"policy": "spot-price"}}, "config.restart.policy: spot-price is not served"),
    ({"restart": {"max_retries": -1}}, "config.restart.max_retries"),
    ({"stop_config": {"signal": "SIGNOPE"}}, "config.stop_config.signal: 'SIGNOPE' is not a signal"),
    ({"stop_config": {"timeout": "1h"}}, "config.stop_config.timeout must be between 0 s and 300 s"),
    ({"stop_config": {"timeout": "-1s"}}, "config.stop_config.timeout"),
    ({"checks": {"a": {"type": "tcp", "port": 0}}}, "config.checks.a.port must be between"),
    ({"services": [{"internal_port": 0}]}, r"config.services\[0\].internal_port must be between"),
    ({"guest": {"gpus": 1}}, "config.guest.gpus says how many, but guest.gpu_kind does not say of what kind"),
]


@pytest.mark.parametrize(("given", "complaint"), REFUSED)
def test_a_refusal_opens_with_the_path_of_the_field(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Unprocessable, match=f"^{complaint}"):
        _check(given)


def test_files_need_a_driver_with_a_filesystem() -> None:
    with pytest.raises(Unprocessable, match=r"^config\.files is not served by this node's driver"):
        _check({"files": [{"guest_path": "/a"}]}, Driver(rootfs=False))


def test_a_drivers_features_say_what_is_served() -> None:
    validate(MachineConfig(image="a"), Features(rootfs=False, network=False, limits=False))


def test_metadata_alone_has_the_same_rule() -> None:
    validate_metadata({"a": "b"})
    with pytest.raises(Unprocessable, match=r"^metadata is larger"):
        validate_metadata({"a": "x" * 65_536})


def test_metadata_that_is_over_its_bounds_may_become_less() -> None:
    many = {str(number): "x" for number in range(1002)}
    large = {"a": "x" * 70_000, "b": "y"}
    wide = {"a": "\x01" * 30_000, "b": "y"}
    for before in (many, large, wide):
        shorter = dict(list(before.items())[1:]) if before is many else {**before, "b": ""}
        validate_metadata(shorter, before)
        validate_metadata(before, before)
        with pytest.raises(Unprocessable, match=r"^metadata (has more|is larger)"):
            validate_metadata({**shorter, "c": ""}, before)
        with pytest.raises(Unprocessable, match=r"^metadata (has more|is larger)"):
            validate_metadata({**before, "b": "zz"}, before)
    with pytest.raises(Unprocessable, match=r"^metadata has an empty key"):
        validate_metadata({"": "x"}, many)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["tcp", "5s", "/a", "aGk="]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=25,
)


@hypothesis.given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6))
def test_any_config_is_accepted_with_a_meaning_or_refused_by_path(given: dict[str, Any]) -> None:
    try:
        config = msgspec.convert({"image": "nginx", **given}, MachineConfig)
    except msgspec.ValidationError:
        return
    try:
        validate(config, SERVED)
    except Unprocessable as error:
        assert str(error).startswith("config.")
        return
    assert guest(config).cpus >= 1 and stop_config(config)[1] >= 0
    assert restart_policy(config)[1] >= 0 and len({check.name for check in checks(config)}) == len(checks(config))
    shown = dict.fromkeys((file.image_config or "" for file in config.files or ()), b"")
    assert len(list(file_contents(config.files, {}, shown))) == len(config.files or ())


def test_containers_need_a_driver_that_keeps_them_apart() -> None:
    with pytest.raises(Unprocessable, match=r"^config\.containers is not served by this node's driver"):
        _check({"containers": [{"name": "web", "image": "nginx"}]}, Driver(containers=False))
    _check({"containers": [{"name": "web", "image": "nginx"}], "image": None})


TAKEN_BEFORE: dict[str, Any] = {
    "metadata": {str(number): "x" for number in range(1001)},
    "env": {"LONG": "x" * 600_000},
    "services": [{"ports": [{"port": 80, "http_options": {"response": {"headers": {"Keep-Alive": "5"}}}}]}],
}


@pytest.mark.parametrize(
    ("more", "served", "complaint"),
    [
        ({}, SERVED, None),
        ({"guest": {"memory_mb": -1}}, SERVED, "guest.memory_mb must be between"),
        ({"rootfs": {"size_gb": -1}}, SERVED, "rootfs.size_gb must be between"),
        ({"containers": [{"name": "web"}]}, Driver(containers=False), "containers is not served"),
        ({"rootfs": {"persist": "always"}}, Driver(rootfs=False), "rootfs.persist is not served"),
        ({"cache_drive": {"size_mb": 1}}, SERVED, "cache_drive is not served"),
    ],
)
def test_machine_of_another_node_keeps_only_to_what_is_served_and_its_room(
    more: dict[str, Any], served: Driver, complaint: str | None
) -> None:
    config = msgspec.convert({"image": "nginx", **TAKEN_BEFORE, **more}, MachineConfig)
    assert len(list(complaints(config))) >= 3
    if complaint is None:
        return validate_served(config, served)
    with pytest.raises(Unprocessable, match=rf"^config\.{complaint}"):
        validate_served(config, served)


def test_all_complaints_of_a_config_are_told_at_once() -> None:
    config = MachineConfig(env={"A=B": "x"}, cache_drive=CacheDrive(size_mb=1), auto_destroy=True)
    said = list(complaints(config))
    assert said[0].startswith("cache_drive: not served") and len(said) == 3
    assert any(each.startswith("image") for each in said) and any(each.startswith("env") for each in said)
    assert not list(complaints(MachineConfig(image="a:1")))
