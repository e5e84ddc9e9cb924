"""What is said of published ports to who has just ordered a machine."""

from typing import Any

import pytest

from hawker.api.contract.machine import MachineParams
from hawker.api.contract.port import PublishedPortState
from hawker.cli.exits import Failure
from hawker.cli.publishing import addresses, published, published_now, unserved, where
from hawker.clock import ManualClock
from hawker.config import PUBLISH, MachineConfig, Service
from hawker.config.machine import Port, Static, TlsOptions
from hawker.errors import Unavailable

PARAMS = MachineParams(app_name="shop", machine_id="m")
CONFIG = MachineConfig(metadata={PUBLISH: "*"})


def port(
    refused: str = "", *, address: str = "0.0.0.0", handlers: tuple[str, ...] = (), protocol: str = "tcp"
) -> PublishedPortState:
    return PublishedPortState(
        address=address,
        port=8080,
        internal_port=80,
        protocol=protocol,
        handlers=handlers,
        listening=not refused,
        refused=refused,
    )


class PlayedNode:
    """Answers with one list after the other, and then with the last one."""

    def __init__(self, *answers: tuple[PublishedPortState, ...] | Exception) -> None:
        self._answers = list(answers)

    async def call(self, *arguments: Any, **named: Any) -> Any:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def ask(*answers: tuple[PublishedPortState, ...] | Exception) -> tuple[PublishedPortState, ...]:
    return await published(PlayedNode(*answers), PARAMS, CONFIG, ManualClock())  # type: ignore[arg-type]


async def test_a_port_is_waited_for_until_the_host_listens() -> None:
    assert await ask(Unavailable("not there"), (), (port("the edge does not listen there yet"),), (port(),)) == (
        port(),
    )


async def test_a_port_that_is_refused_is_a_failure_with_its_reason() -> None:
    with pytest.raises(Failure, match="8080 is not published: in use"):
        await ask((port("in use by another program of this host"),))
    with pytest.raises(Failure, match="yet"):
        await ask((port("the edge does not listen there yet"),))


async def test_ports_are_told_as_they_are_with_the_reason_of_each_that_is_closed() -> None:
    node: Any = PlayedNode((port(), port("in use by another program of this host", address="10.0.0.1")))
    found = await published_now(node, PARAMS, CONFIG)
    assert where(found) == (
        "localhost:8080 -> 80; 10.0.0.1 port 8080 is not published: in use by another program of this host"
    )
    away: Any = PlayedNode(Unavailable("x"))
    assert where(await published_now(away, PARAMS, CONFIG)) == "" == where(await published_now(node, PARAMS, None))


async def test_a_machine_without_ports_is_not_held_up() -> None:
    assert await published(PlayedNode(Unavailable("x")), PARAMS, MachineConfig(), ManualClock()) == ()  # type: ignore[arg-type]


def test_addresses_are_shown_as_one_types_them() -> None:
    assert addresses([port(), port(address="::")]) == "localhost:8080 -> 80"
    assert addresses([port(address="::1", handlers=("http",))]) == "http://[::1]:8080 -> 80"
    assert addresses([port(), port(protocol="udp")]) == "localhost:8080 -> 80, localhost:8080/udp -> 80"
    assert addresses([]) == ""


def test_a_field_kept_and_not_served_is_said() -> None:
    def said(*services: Service, publish: str = "*") -> list[str]:
        return list(unserved(MachineConfig(services=services, metadata={PUBLISH: publish} if publish else None)))

    plain = Service(internal_port=80, ports=(Port(port=80),))
    assert said(plain) == []
    assert "hawker ips allocate" in said(plain, publish="")[0]
    assert said(Service(protocol="udp", internal_port=53, ports=(Port(port=53),))) == []
    assert said(Service(internal_port=80, ports=(Port(port=443, handlers=("tls", "http")),))) == []
    assert said(Service(internal_port=80, ports=(Port(port=5432, handlers=("pg_tls",)),))) == []
    offered = TlsOptions(alpn=("h2", "spdy/3"))
    secure = Port(port=443, handlers=("tls", "http"), tls_options=offered)
    assert "only h2 and http/1.1" in said(Service(internal_port=80, ports=(secure,)))[0]
    named = Service(internal_port=80, ports=(Port(port=80),), force_instance_key="k")
    assert "force_instance_key" in said(named)[0]
    assert list(unserved(MachineConfig(statics=(Static(guest_path="/s", url_prefix="/"),)))) == [
        "statics are kept and not served"
    ], "also without services"
    assert "disable_machine_autostart" in next(iter(unserved(MachineConfig(disable_machine_autostart=True))))
