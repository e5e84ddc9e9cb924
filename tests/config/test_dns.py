"""What `dns` asks for inside a machine, and which of it makes no sense."""

from typing import Any

import msgspec
import pytest

from hawker.config import MachineConfig, validate
from hawker.config.dns import asks_inside, complaints, host_names, resolver_file
from hawker.config.machine import DnsConfig
from hawker.errors import Unprocessable
from hawker.runtime.driver import Features

FULL = {
    "nameservers": ["10.0.0.53", "fd00::53"],
    "searches": ["svc.example.", "example"],
    "options": [{"name": "ndots", "value": "2"}, {"name": "rotate"}],
}


def dns(**fields: Any) -> DnsConfig:
    return msgspec.convert(fields, DnsConfig)


def test_the_resolver_file_has_what_is_asked_for() -> None:
    assert resolver_file(dns(**FULL), ("9.9.9.9",)) == (
        "nameserver 10.0.0.53\nnameserver fd00::53\nsearch svc.example. example\noptions ndots:2 rotate\n"
    )


@pytest.mark.parametrize("asked", [None, dns(), dns(skip_registration=True, nameservers=[])])
def test_without_name_servers_of_its_own_a_machine_uses_the_nodes(asked: DnsConfig | None) -> None:
    assert resolver_file(asked, ("9.9.9.9",)) == "nameserver 9.9.9.9\n"
    assert host_names(asked, "m1") == ("m1",)
    assert not asks_inside(asked)


def test_the_host_name_comes_first_and_each_name_once() -> None:
    assert host_names(dns(hostname="web", hostname_fqdn="web.example.com"), "m1") == ("web", "web.example.com", "m1")
    assert host_names(dns(hostname_fqdn="m1."), "m1") == ("m1",)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"nameservers": ["dns.example"]}, "nameservers"),
        ({"nameservers": ["fe80::1%eth0"]}, "nameservers"),
        ({"nameservers": ["1.1.1.1\nsearch evil"]}, "nameservers"),
        ({"nameservers": ["1.1.1.1"] * 4}, "nameservers"),
        ({"searches": ["a b"]}, "searches"),
        ({"searches": ["a\noptions x"]}, "searches"),
        ({"searches": ["a"] * 7}, "searches"),
        ({"searches": [".".join(["a" * 60] * 5)]}, "searches"),
        ({"options": [{}]}, "options"),
        ({"options": [{"name": "ndots", "value": "2\nnameserver 1.1.1.1"}]}, "options"),
        ({"options": [{"name": "a b"}]}, "options"),
        ({"hostname": "web.example"}, "hostname"),
        ({"hostname": "-web"}, "hostname"),
        ({"hostname": "web\n127.0.0.1 evil"}, "hostname"),
        ({"hostname_fqdn": "web..com"}, "hostname_fqdn"),
    ],
)
def test_a_senseless_setting_is_named(fields: dict[str, Any], path: str) -> None:
    (complaint, *_) = complaints(dns(**fields))
    assert complaint.startswith(path)
    config = msgspec.convert({"image": "a", "dns": fields}, MachineConfig)
    with pytest.raises(Unprocessable, match=f"config.dns.{path}"):
        validate(config, Features(rootfs=True, network=True, limits=True))


def test_a_driver_without_a_root_filesystem_cannot_write_it() -> None:
    plain = Features(rootfs=False, network=False, limits=False)
    with pytest.raises(Unprocessable, match=r"config\.dns is not served by this node's driver"):
        validate(msgspec.convert({"image": "a", "dns": FULL}, MachineConfig), plain)
    validate(msgspec.convert({"image": "a", "dns": {"skip_registration": True}}, MachineConfig), plain)
