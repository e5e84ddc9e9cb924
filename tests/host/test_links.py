"""Facts about links, addresses and routes, made in a namespace of our own and read back from the kernel."""

import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path

import pytest

from hawker.host import links, netns
from hawker.host.netlink import NetlinkRequest, NetlinkSocket

pytestmark = pytest.mark.root

_MAC = "02:00:00:00:00:01"


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "ns"
    netns.create(path, lambda _: None)
    yield path
    netns.delete(path)


def _apply(namespace: Path, *requests: NetlinkRequest) -> None:
    def work() -> None:
        with NetlinkSocket() as netlink:
            netlink.apply(requests)

    netns.inside(namespace, work)


def _links(namespace: Path) -> dict[str, links.HostLink]:
    def work() -> list[links.HostLink]:
        with NetlinkSocket() as netlink:
            return links.links(netlink)

    return {link.name: link for link in netns.inside(namespace, work)}


def _ip(namespace: Path, *arguments: str) -> str:
    command = ["nsenter", f"--net={namespace}", "ip", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_bridge_is_made_once_with_its_address(namespace: Path) -> None:
    _apply(namespace, links.add_bridge("br", _MAC), links.add_bridge("br", _MAC))
    assert set(_links(namespace)) == {"lo", "br"}
    shown = _ip(namespace, "-d", "link", "show", "br")
    assert _MAC in shown and "mcast_snooping 0" in shown and ",UP" in shown


def test_a_port_knows_its_bridge_and_its_other_end(namespace: Path) -> None:
    _apply(namespace, links.add_bridge("br", _MAC))
    bridge = _links(namespace)["br"].index
    with namespace.open() as same:
        peer = links.VethPeer("far", "06:00:00:00:00:01", same.fileno())
        _apply(namespace, links.add_veth("near", master=bridge, peer=peer))
    near, far = _links(namespace)["near"].index, _links(namespace)["far"].index

    def ask() -> tuple[int | None, int | None, int | None]:
        with NetlinkSocket() as netlink:
            return links.link(netlink, near).master, links.other_end_of(netlink, near), links.link(netlink, far).master

    assert netns.inside(namespace, ask) == (bridge, far, None)


def test_a_number_in_a_name_is_the_kernels_choice(namespace: Path) -> None:
    _apply(namespace, links.add_bridge("br", _MAC))
    bridge = _links(namespace)["br"].index
    with namespace.open() as same:
        for far in ("far0", "far1"):
            peer = links.VethPeer(far, "06:00:00:00:00:01", same.fileno())
            _apply(namespace, links.add_veth("port%d", master=bridge, peer=peer))
    assert {"port0", "port1"} <= set(_links(namespace))


def test_addresses_and_routes_are_replaced_and_deleted_without_complaint(namespace: Path) -> None:
    _apply(namespace, links.add_bridge("br", _MAC))
    index = _links(namespace)["br"].index
    host, default = IPv4Interface("10.9.0.1/32"), IPv4Interface("0.0.0.0/0")
    address = links.add_address(index, IPv6Interface("fdaa:1:2::1/48"))
    _apply(namespace, links.add_address(index, IPv4Interface("10.9.0.2/32")))
    routes = [links.add_route(host, index), links.add_route(default, index, via="169.254.1.1")]
    _apply(namespace, address, address, *routes, *routes)
    assert "fdaa:1:2::1/48 scope global nodad" in _ip(namespace, "-6", "addr", "show", "br")
    default_route, host_route = _ip(namespace, "route").splitlines()
    assert default_route.startswith("default via 169.254.1.1 dev br proto static onlink")
    assert host_route.startswith("10.9.0.1 dev br proto static scope link")
    _apply(namespace, links.delete_route(host, index), links.delete_route(host, index))
    assert "10.9.0.1" not in _ip(namespace, "route")


def test_deleting_what_is_gone_is_no_error(namespace: Path) -> None:
    _apply(namespace, links.add_bridge("br", _MAC))
    index = _links(namespace)["br"].index
    _apply(namespace, links.delete_link_by_index(index), links.delete_link("br"), links.delete_link_by_index(index))
    assert set(_links(namespace)) == {"lo"}


def test_an_interface_that_is_not_there_has_no_index() -> None:
    assert links.index_of("nope") is None
    assert links.index_of("lo") == 1
