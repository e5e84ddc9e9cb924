from typing import Any

import msgspec
import pytest

from hawker.config import Container, MachineConfig
from hawker.config.containers import TcpHealthcheck
from hawker.config.effective_containers import (
    Healthcheck,
    TempDir,
    container_image,
    container_restart,
    container_stop,
    healthchecks,
    temp_dirs,
)
from hawker.machine import Policy


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
    assert temp_dirs(config(volumes=volumes)) == (TempDir("a", "disk", 1), TempDir("b", "memory", 2))
    assert temp_dirs(config()) == ()
