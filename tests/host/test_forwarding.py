"""Facts about the kernel's switches, seen in namespaces of our own: the host's are not touched."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.host import links, netns
from hawker.host.machine_link import allow_forwarding, prepare_bridge, prepare_machine
from hawker.host.netlink import NetlinkSocket

pytestmark = pytest.mark.root

_NET = Path("/proc/sys/net")
_MAC = "02:00:00:00:00:01"


def _read(key: str) -> str:
    return (_NET / key).read_text().strip()


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "ns"

    def add_links(_: int) -> None:
        with NetlinkSocket() as netlink:
            netlink.apply([links.add_bridge(name, _MAC) for name in ("uplink", "other")])
        (_NET / "ipv6/conf/uplink/accept_ra").write_text("1")
        (_NET / "ipv6/conf/other/accept_ra").write_text("0")

    netns.create(path, add_links)
    yield path
    netns.delete(path)


def test_forwarding_does_not_deafen_the_host_to_its_routers(namespace: Path) -> None:
    def work() -> tuple[str, ...]:
        allow_forwarding()
        keys = (
            "ipv6/conf/all/forwarding",
            "ipv4/ip_forward",
            "ipv6/conf/uplink/accept_ra",
            "ipv6/conf/other/accept_ra",
        )
        return tuple(_read(key) for key in keys)

    assert netns.inside(namespace, work) == ("1", "1", "2", "0")
    assert netns.inside(namespace, work) == ("1", "1", "2", "0")


def test_a_bridge_believes_no_router(namespace: Path) -> None:
    def work() -> str:
        prepare_bridge("uplink")
        return _read("ipv6/conf/uplink/accept_ra")

    assert netns.inside(namespace, work) == "0"


def test_a_machine_may_ping_and_listen_low_and_believes_no_router(namespace: Path) -> None:
    def work() -> tuple[str, ...]:
        prepare_machine()
        keys = ("ipv4/ip_unprivileged_port_start", "ipv4/ping_group_range", "ipv6/conf/default/accept_ra")
        return tuple(_read(key) for key in keys)

    assert netns.inside(namespace, work) == ("0", "0\t2147483647", "0")
