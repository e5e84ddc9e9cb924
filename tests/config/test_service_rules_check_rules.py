from typing import Any

import msgspec
import pytest

from hawker.config import MachineCheck
from hawker.config.machine import ServiceCheck
from hawker.config.service_rules import check_complaints

WEB = {"type": "http", "port": 80}
TCP = {"type": "tcp", "port": 1}


def _complaint(given: dict[str, Any], kind: type[MachineCheck] | type[ServiceCheck] = MachineCheck) -> str | None:
    return next(check_complaints(msgspec.convert(given, kind)), None)


@pytest.mark.parametrize(
    "given",
    [
        TCP,
        WEB | {"path": "/a?b=c", "method": "head", "protocol": "https", "tls_server_name": "a.example"},
        WEB | {"interval": "1s", "timeout": "1ms", "grace_period": 0, "headers": [{"name": "A", "values": ["1"]}]},
    ],
)
def test_checks_of_clients_are_accepted(given: dict[str, Any]) -> None:
    assert _complaint(given) is None
    assert _complaint(given, ServiceCheck) is None


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"port": 80}, "type is required"),
        ({"type": "tcp"}, "port must be between 1 and 65535, not None"),
        ({"type": "tcp", "port": 65536}, "port"),
        (TCP | {"interval": "1ms"}, "interval must be between"),
        (TCP | {"interval": "often"}, "interval: 'often'"),
        (TCP | {"timeout": "1h"}, "timeout"),
        (TCP | {"grace_period": "-1s"}, "grace_period"),
        (WEB | {"path": "x"}, "path must begin with /"),
        (WEB | {"path": "/\r\n"}, "path"),
        (WEB | {"method": "G T"}, "method"),
        (WEB | {"headers": [{"values": ["1"]}]}, "headers"),
        (WEB | {"headers": [{"name": "A", "values": ["\n"]}]}, "headers"),
        (WEB | {"tls_server_name": "a\n"}, "tls_server_name"),
    ],
)
def test_a_complaint_opens_with_the_field(given: dict[str, Any], complaint: str) -> None:
    found = _complaint(given)
    assert found is not None and found.startswith(complaint)


def test_the_check_of_a_service_takes_its_port_and_has_the_same_rules() -> None:
    assert _complaint({"type": "tcp"}, ServiceCheck) is None
    assert _complaint({"type": "tcp", "port": 0}, ServiceCheck) == "port must be between 1 and 65535, not 0"
    assert _complaint({"type": "icmp"}, ServiceCheck) == "type is required: tcp or http"
    assert _complaint({"type": "http", "protocol": "gopher"}, ServiceCheck) == (
        "protocol must be http or https, not 'gopher'"
    )
