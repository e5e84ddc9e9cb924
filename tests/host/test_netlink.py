"""Facts about batches of netlink requests: read-only ones, which need no root."""

import struct

import pytest

from hawker.host.netlink import DUMP, NetlinkRequest, NetlinkSocket

_GETLINK = 18
_IFINFO = struct.Struct("=BxHiII")
_LOOPBACK = 1
_ENODEV = 19


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
