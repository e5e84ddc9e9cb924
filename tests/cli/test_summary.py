import click
import msgspec

from hawker.api.contract.machine import ContainerStatus, LeaseInfo
from hawker.cli import summary
from hawker.cli.machines import Owned
from hawker.config import Init, MachineConfig, with_guest
from hawker.config.machine import RootfsConfig
from hawker.machine import State
from tests.cli.fake_node import AT, LAUNCHED, STARTED, check, exit_event, machine


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in click.unstyle(text).splitlines()]


def test_a_customer_is_told_where_to_connect() -> None:
    assert ["address", "fdaa::3"] in lines(summary.started("shop", machine()))


def test_the_status_has_checks_and_events() -> None:
    lease = LeaseInfo(description="", expires_at=1_800_000_000, owner="ada")
    seen = machine(
        state=State.STOPPED,
        checks=(check("critical"),),
        events=(exit_event(3), STARTED, LAUNCHED),
        cordoned=True,
        lease=lease,
    )
    text = summary.status(Owned("shop", seen))
    found = lines(text)
    assert ["size", "1", "shared", "cpu,", "256", "MiB"] in found
    assert ["cordoned", "yes"] in found
    assert "held by ada until" in text
    assert next(line for line in found if line[:1] == ["http-80"])[:2] == ["http-80", "critical"]
    assert "it exited with status 3" in text


def test_the_status_has_the_command_and_where_its_ports_are() -> None:
    config = MachineConfig(init=Init(cmd=("sh", "-c", "echo a b")))
    found = summary.status(Owned("shop", machine(config=config)), "localhost:8080 -> 80").splitlines()
    assert "command    sh -c 'echo a b'" in map(click.unstyle, found)
    assert any(line.endswith("localhost:8080 -> 80") for line in found)


def test_a_machine_without_checks_has_no_table_of_them() -> None:
    text = summary.status(Owned("shop", machine(config=None)))
    assert "CHECK" not in text and "size" not in text and "lease" not in text


def test_a_machine_of_several_containers_shows_each() -> None:
    seen = machine(
        containers=(
            ContainerStatus(name="web", state="running"),
            ContainerStatus(name="db", state="exited", restarts=2, exit_code=137, exited_at=AT),
        )
    )
    found = lines(summary.status(Owned("shop", seen)))
    assert ["web", "running", "0", "-"] in found
    assert ["db", "exited", "2", "137", "at"] in [line[:5] for line in found]


def test_a_surprising_default_is_said() -> None:
    config = with_guest(MachineConfig(image="web:3", schedule="daily"))
    text = summary.status(Owned("shop", machine(config=config, state=State.STOPPED)))
    assert "fresh at each start" in text and "on failure, 10 times in a row" in text
    assert "daily, next at 2026-01-0" in text
    assert "daily, runs now" in summary.status(Owned("shop", machine(config=config)))
    kept = with_guest(MachineConfig(image="web:3", rootfs=RootfsConfig(persist="always")))
    assert "kept over restarts" in summary.status(Owned("shop", machine(config=kept)))


def test_the_host_is_named_and_where_it_is_away_that_is_said() -> None:
    here = msgspec.structs.replace(machine(), host="0000000a")
    assert ["host", "0000000a"] in lines(summary.status(Owned("shop", here)))
    away = msgspec.structs.replace(here, host_status="unreachable")
    assert ["host", "0000000a", "away"] in lines(summary.status(Owned("shop", away)))
