"""Facts about many netlink requests at once: read-only ones, which need no root, and changes in our own namespace."""

import socket
import struct
from ipaddress import IPv6Address, IPv6Interface
from pathlib import Path
from threading import get_native_id

import pytest

from hawker.host import links, netns
from hawker.host.netlink import DUMP, NetlinkRequest, NetlinkSocket

_GETLINK = 18
_IFINFO = struct.Struct("=BxHiII")
_LOOPBACK = 1
_ENODEV = 19
_NOTHING = 1
_TABLES = ("if_inet6", "ipv6_route")


def _get(index: int, *, tolerated: int | None = None, flags: int = 0, ack: bool = True) -> NetlinkRequest:
    body = _IFINFO.pack(0, 0, index, 0, 0)
    return NetlinkRequest(_GETLINK, body, flags, frozenset() if tolerated is None else frozenset({tolerated}), ack)


def test_a_question_is_answered() -> None:
    with NetlinkSocket() as netlink:
        assert _IFINFO.unpack_from(netlink.ask(_get(_LOOPBACK, ack=False)))[2] == _LOOPBACK


def test_a_listing_has_every_part() -> None:
    with NetlinkSocket() as netlink:
        indexes = [_IFINFO.unpack_from(body)[2] for body in netlink.dump(_get(0, flags=DUMP, ack=False))]
    assert _LOOPBACK in indexes
    assert len(indexes) == len(set(indexes))


def test_a_refusal_is_raised_with_the_kernels_reason() -> None:
    with NetlinkSocket() as netlink:
        with pytest.raises(OSError, match="No such device"):
            netlink.ask(_get(1 << 30, ack=False))
        with pytest.raises(OSError, match="No such device"):
            netlink.apply([_get(1 << 30)])


def test_a_tolerated_refusal_is_success_and_the_socket_goes_on() -> None:
    with NetlinkSocket() as netlink:
        netlink.apply([_get(1 << 30, tolerated=_ENODEV), _get(_LOOPBACK)])
        assert netlink.ask(_get(_LOOPBACK, ack=False))


def test_all_of_a_batch_is_tried_and_the_first_refusal_told() -> None:
    with NetlinkSocket() as netlink:
        with pytest.raises(OSError) as refused:
            netlink.apply([_get(_LOOPBACK), _get(1 << 30), _get(_LOOPBACK)])
        assert refused.value.errno == _ENODEV
        netlink.apply([_get(_LOOPBACK)])


def test_a_message_is_padded_to_four_bytes_and_says_its_true_length() -> None:
    encoded = NetlinkRequest(_GETLINK, b"abcde").encode(7)
    length, kind, flags, number, _ = struct.unpack_from("=IHHII", encoded)
    assert (length, kind, flags, number, len(encoded)) == (21, _GETLINK, 5, 7, 24)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each datagram to the kernel had."""
    counts: list[int] = []
    send = socket.socket.send

    def counted(to: socket.socket, data: bytes) -> int:
        at, count = 0, 0
        while at < len(data):
            at += struct.unpack_from("=I", data, at)[0] + 3 & ~3
            count += 1
        counts.append(count)
        return send(to, data)

    monkeypatch.setattr(socket.socket, "send", counted)
    return counts


def test_many_requests_go_in_pieces_so_that_every_answer_finds_room(sent: list[int]) -> None:
    with NetlinkSocket() as netlink:
        netlink.apply([_get(1 << 30, tolerated=_ENODEV)] * 650)
    assert sent == [100] * 6 + [50]


def test_a_batch_is_one_piece(sent: list[int]) -> None:
    frame = NetlinkRequest(_NOTHING, b"", ack=False)
    with NetlinkSocket() as netlink:
        netlink.apply([frame, *[_get(1 << 30, tolerated=_ENODEV)] * 150, frame])
    assert sent == [152]


@pytest.mark.root
def test_a_link_gets_600_addresses_and_routes_and_those_after_a_refusal_too(tmp_path: Path) -> None:
    def listed() -> tuple[int, int]:
        addresses, routes = (Path(f"/proc/self/task/{get_native_id()}/net/{name}").read_text() for name in _TABLES)
        return addresses.count("fdaa0007"), routes.count("fdaa0008")

    def work(_: int) -> None:
        with NetlinkSocket() as netlink:
            netlink.apply([links.add_bridge("many", "02:00:00:00:00:01")])
            index = links.index_of("many")
            assert index is not None
            requests = [links.add_address(index, _interface("fdaa:7::", number)) for number in range(1, 601)]
            requests += [links.add_route(_interface("fdaa:8::", number), index) for number in range(1, 601)]
            with pytest.raises(OSError, match="No such device"):
                netlink.apply([links.link_up(1 << 30), *requests])
            assert listed() == (600, 600)
            netlink.apply(requests)
            assert listed() == (600, 600), "what is there stays"

    netns.create(tmp_path / "ns", work)
    netns.delete(tmp_path / "ns")


def _interface(prefix: str, number: int) -> IPv6Interface:
    return IPv6Interface(IPv6Address(prefix) + number)
