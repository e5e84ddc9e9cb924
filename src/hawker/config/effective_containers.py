"""What containers mean once the contract's defaults are filled in. Pure; takes configs that `validate` accepted."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from hawker.config.containers import (
    Container,
    ContainerHealthcheck,
    ExecHealthcheck,
    HttpHealthcheck,
    TcpHealthcheck,
)
from hawker.config.effective import policy_of, stop_config, stop_of
from hawker.config.machine import MachineConfig
from hawker.machine import Policy

Asks: TypeAlias = HttpHealthcheck | TcpHealthcheck | ExecHealthcheck
Storage: TypeAlias = Literal["disk", "memory"]

INTERVAL_S, TIMEOUT_S, GRACE_S = 15.0, 10.0, 0.0
SUCCESSES, FAILURES = 1, 3


@dataclass(frozen=True, slots=True)
class Healthcheck:
    """One check of a container. It is asked first when `grace_s` is over; so many `successes` in a row make it passing,
    so many `failures` in a row critical. `stops`: the container is stopped then. Times are seconds."""

    container: str
    name: str
    interval_s: float
    timeout_s: float
    grace_s: float
    successes: int
    failures: int
    stops: bool
    asks: Asks = field(compare=False)


@dataclass(frozen=True, slots=True)
class TempDir:
    """A volume of the machine's containers, made fresh for each instance. Sizes count MiB."""

    name: str
    storage: Storage
    size_mib: int


def container_image(config: MachineConfig, container: Container) -> str:
    """Its own, else the machine's."""
    return container.image or config.image or ""


def container_restart(container: Container) -> tuple[Policy, int]:
    """As for a machine: on-failure, and ten tries, when unset."""
    return policy_of(container.restart)


def container_stop(config: MachineConfig, container: Container) -> tuple[str, float]:
    """The signal's full name, and the seconds until SIGKILL; the machine's where it has none of its own."""
    return stop_of(container.stop, *stop_config(config))


def healthchecks(container: Container) -> tuple[Healthcheck, ...]:
    """One without a name is called by its container and its place."""
    given = container.healthchecks or ()
    return tuple(_healthcheck(container, index, each) for index, each in enumerate(given))


def _healthcheck(container: Container, index: int, given: ContainerHealthcheck) -> Healthcheck:
    asks = given.http or given.tcp or given.exec
    assert asks is not None, "a healthcheck asks something"
    return Healthcheck(
        container=container.name or "",
        name=given.name or f"{container.name}-{index:02}",
        interval_s=float(given.interval or INTERVAL_S),
        timeout_s=float(given.timeout or TIMEOUT_S),
        grace_s=float(given.grace_period or GRACE_S),
        successes=given.success_threshold or SUCCESSES,
        failures=given.failure_threshold or FAILURES,
        stops=given.unhealthy == "stop",
        asks=asks,
    )


def temp_dirs(config: MachineConfig) -> tuple[TempDir, ...]:
    """On disk unless they ask for memory."""
    return tuple(_temp_dirs(config))


def _temp_dirs(config: MachineConfig) -> Iterator[TempDir]:
    for volume in config.volumes or ():
        given = volume.temp_dir
        assert given is not None, "a volume has its kind"
        yield TempDir(volume.name or "", given.storage_type or "disk", given.size_mb or 0)
