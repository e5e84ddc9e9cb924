import base64
from typing import Any

import msgspec
import pytest

from hawker.config import (
    Container,
    File,
    Guest,
    HttpHeader,
    MachineCheck,
    MachineConfig,
    MachineRestart,
    Service,
    Size,
    StopConfig,
    checks,
    file_contents,
    guest,
    restart_policy,
    stop_config,
    with_guest,
)
from hawker.config.effective import (
    EffectiveTempDir,
    Healthcheck,
    container_image,
    container_restart,
    container_stop,
    healthchecks,
    temp_dirs,
)
from hawker.config.machine import ServiceCheck, TcpHealthcheck
from hawker.errors import BadRequest
from hawker.machine import Policy


@pytest.mark.parametrize(
    ("config", "size"),
    [
        (MachineConfig(), Size("shared", 1, 256)),
        (MachineConfig(guest=Guest(cpus=2)), Size("shared", 2, 512)),
        (MachineConfig(guest=Guest(cpu_kind="performance", cpus=2)), Size("performance", 2, 4096)),
        (MachineConfig(guest=Guest(memory_mb=1024)), Size("shared", 1, 1024)),
        (MachineConfig(size="shared-cpu-4x"), Size("shared", 4, 1024)),
        (MachineConfig(size="performance-16x"), Size("performance", 16, 32768)),
    ],
)
def test_the_size_is_the_guest_or_the_preset_or_the_smallest(config: MachineConfig, size: Size) -> None:
    assert guest(config) == size


def test_answers_always_have_a_guest_and_are_otherwise_as_given() -> None:
    given = MachineConfig(image="a", size="performance-2x")
    shown = with_guest(given)
    assert shown.guest == Guest(cpu_kind="performance", cpus=2, memory_mb=4096)
    assert (shown.image, shown.size) == ("a", "performance-2x")
    partial = MachineConfig(guest=Guest(cpus=2))
    assert with_guest(partial) is partial


@pytest.mark.parametrize(
    ("restart", "means"),
    [
        (None, (Policy.ON_FAILURE, 10)),
        (MachineRestart(), (Policy.ON_FAILURE, 10)),
        (MachineRestart(policy="no"), (Policy.NO, 10)),
        (MachineRestart(policy="always", max_retries=3), (Policy.ALWAYS, 3)),
        (MachineRestart(max_retries=0), (Policy.ON_FAILURE, 0)),
    ],
)
def test_on_failure_with_ten_tries_is_the_default_policy(
    restart: MachineRestart | None, means: tuple[Policy, int]
) -> None:
    assert restart_policy(MachineConfig(restart=restart)) == means


@pytest.mark.parametrize(
    ("stop", "means"),
    [
        (None, ("SIGINT", 5.0)),
        (StopConfig(), ("SIGINT", 5.0)),
        (StopConfig(signal="TERM", timeout="1m"), ("SIGTERM", 60.0)),
        (StopConfig(timeout="0s"), ("SIGINT", 0.0)),
        (StopConfig(timeout=2_000_000_000), ("SIGINT", 2.0)),
    ],
)
def test_sigint_and_five_seconds_are_the_default_stop(stop: StopConfig | None, means: tuple[str, float]) -> None:
    assert stop_config(MachineConfig(stop_config=stop)) == means


def test_files_have_content_and_a_mode() -> None:
    files = (File(guest_path="/a", raw_value="aGk="), File(guest_path="/b", mode=0o600))
    assert list(file_contents(files, {}, {})) == [("/a", b"hi", 0o644), ("/b", b"", 0o600)]


def test_a_file_shows_the_config_of_the_image_it_names() -> None:
    files = (File(guest_path="/a", image_config="nginx", mode=0o400),)
    assert list(file_contents(files, {}, {"nginx": b"{}", "redis": b"[]"})) == [("/a", b"{}", 0o400)]


def test_files_that_are_too_large_together_are_refused_wherever_their_content_is_from() -> None:
    mib = 1 << 20
    secrets, shown = {"key": base64.b64encode(bytes(mib)).decode()}, {"nginx": bytes(2 * mib)}
    files = [File(guest_path="/a", image_config="nginx"), *(File(guest_path=f"/{n}", secret_name="key") for n in "bc")]
    assert len(list(file_contents(files, secrets, shown))) == 3
    with pytest.raises(BadRequest, match=f"larger than {4 * mib} bytes"):
        list(file_contents([*files, File(guest_path="/d", raw_value="aGk=")], secrets, shown))


def test_a_check_has_defaults_for_all_that_is_left_out() -> None:
    config = MachineConfig(
        checks={
            "up": MachineCheck(type="tcp", port=80),
            "web": MachineCheck(
                type="http",
                port=8080,
                interval="1m",
                timeout="2s",
                grace_period="0s",
                method="head",
                path="/health",
                protocol="https",
                tls_skip_verify=True,
                headers=(HttpHeader(name="A", values=("1", "2")), HttpHeader(name="B")),
            ),
        }
    )
    up, web = checks(config)
    assert (up.interval_s, up.timeout_s, up.grace_s, up.method, up.path, up.protocol) == (15, 10, 5, "GET", "/", "http")
    assert (web.interval_s, web.timeout_s, web.grace_s, web.method) == (60, 2, 0, "HEAD")
    assert web.headers == (("A", "1"), ("A", "2")) and web.tls_skip_verify


def test_checks_of_services_follow_numbered_through_with_the_port_of_their_service() -> None:
    config = MachineConfig(
        checks={"up": MachineCheck(type="tcp", port=80)},
        services=(
            Service(internal_port=8080, checks=(ServiceCheck(type="tcp"), ServiceCheck(type="http", port=9))),
            Service(internal_port=5432, checks=(ServiceCheck(type="tcp", grace_period="1m"),)),
        ),
    )
    names = [(check.name, check.port) for check in checks(config)]
    assert names == [
        ("up", 80),
        ("servicecheck-00-tcp-8080", 8080),
        ("servicecheck-01-http-9", 9),
        ("servicecheck-02-tcp-5432", 5432),
    ]
    assert checks(config)[3].grace_s == 60


def test_a_check_may_expect_another_name_in_the_certificate() -> None:
    check = MachineCheck(type="http", port=443, protocol="https", tls_server_name="a.example")
    (found,) = checks(MachineConfig(checks={"web": check}))
    assert found.tls_server_name == "a.example"


def container(**given: Any) -> Container:
    return msgspec.convert({"name": "web", **given}, Container)


def config(**given: Any) -> MachineConfig:
    return msgspec.convert({"image": "nginx", **given}, MachineConfig)


def test_a_container_without_an_image_is_made_from_the_machines() -> None:
    assert container_image(config(), container()) == "nginx"
    assert container_image(config(), container(image="redis")) == "redis"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (Policy.ON_FAILURE, 10)),
        ({"restart": {"policy": "always"}}, (Policy.ALWAYS, 10)),
        ({"restart": {"max_retries": 0}}, (Policy.ON_FAILURE, 0)),
    ],
)
def test_the_restart_policy_is_as_a_machines(given: dict[str, Any], expected: tuple[Policy, int]) -> None:
    assert container_restart(container(**given)) == expected


def test_a_container_stops_as_its_machine_unless_it_says_otherwise() -> None:
    machine = config(stop_config={"signal": "SIGTERM", "timeout": "9s"})
    assert container_stop(machine, container()) == ("SIGTERM", 9.0)
    assert container_stop(machine, container(stop={"signal": "quit"})) == ("SIGQUIT", 9.0)
    assert container_stop(config(), container(stop={"timeout": "2s"})) == ("SIGINT", 2.0)


def test_a_healthcheck_has_its_defaults() -> None:
    (found,) = healthchecks(container(healthchecks=[{"tcp": {"port": 80}}]))
    assert found == Healthcheck("web", "web-00", 15.0, 10.0, 0.0, 1, 3, False, TcpHealthcheck(port=80))
    assert found.asks == TcpHealthcheck(port=80)


def test_a_healthcheck_is_as_it_was_given() -> None:
    given = {
        "name": "up",
        "tcp": {"port": 80},
        "interval": 2,
        "timeout": 3,
        "grace_period": 4,
        "success_threshold": 5,
        "failure_threshold": 6,
        "unhealthy": "stop",
    }
    (found,) = healthchecks(container(healthchecks=[given]))
    assert found == Healthcheck("web", "up", 2.0, 3.0, 4.0, 5, 6, True, TcpHealthcheck(port=80))


def test_a_temp_dir_is_on_disk_unless_it_asks_for_memory() -> None:
    volumes = [
        {"name": "a", "temp_dir": {"size_mb": 1}},
        {"name": "b", "temp_dir": {"size_mb": 2, "storage_type": "memory"}},
    ]
    assert temp_dirs(config(volumes=volumes)) == (EffectiveTempDir("a", "disk", 1), EffectiveTempDir("b", "memory", 2))
    assert temp_dirs(config()) == ()
