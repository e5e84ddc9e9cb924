"""Requests to the kernel about packet rules: what is asked and changed too often to start `nft` for it.

A change is a batch, which the kernel carries out whole or not at all.
"""

import socket
import struct
from collections.abc import Iterable, Iterator, Sequence

from hawker.host.netlink import CREATE, DUMP, NetlinkRequest
from hawker.value_object import ValueObject

INET, BRIDGE = 1, 7
"""Families of tables: packets that the host routes or answers; frames that a bridge passes."""

_SUBSYSTEM = 10 << 8
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NEW_ELEMENT, _GET_ELEMENT, _DELETE_ELEMENT = _SUBSYSTEM | 12, _SUBSYSTEM | 13, _SUBSYSTEM | 14
_GET_TABLE, _DELETE_TABLE, _GET_CHAIN = _SUBSYSTEM | 1, _SUBSYSTEM | 2, _SUBSYSTEM | 4
_GET_OBJECT = _SUBSYSTEM | 19
_OBJECT_NAME, _OBJECT_DATA, _COUNTER_PACKETS = 2, 4, 2
_NESTED = 0x8000
_KIND = 0x3FFF
_ENOENT, _EEXIST = 2, 17
_NFGEN_SIZE = 4
_TABLE, _NAME, _ELEMENTS = 1, 2, 3
_LIST_ELEMENT, _KEY, _VALUE = 1, 1, 1


class Element(ValueObject, frozen=True):
    """An element of a named set of a table; `key` is as the kernel has it, each part padded to a multiple of four
    bytes."""

    family: int
    """The table's family: `INET` or `BRIDGE`."""
    table: str
    """The table's name."""
    set: str
    """The set's name in the table."""
    key: bytes


def look_up_table(name: str, family: int = INET) -> NetlinkRequest:
    """A request that the kernel answers with the table; ENOENT when the table is not there."""
    return NetlinkRequest(_GET_TABLE, _nfgen(family, 0) + _attribute(_TABLE, _text(name)), ack=False)


def look_up_chain(table: str, name: str) -> NetlinkRequest:
    return NetlinkRequest(
        _GET_CHAIN, _nfgen(INET, 0) + _attribute(_TABLE, _text(table)) + _attribute(3, _text(name)), ack=False
    )


def remove_table(name: str, family: int = INET) -> Sequence[NetlinkRequest]:
    body = _nfgen(family, 0) + _attribute(_TABLE, _text(name))
    return _batch([NetlinkRequest(_DELETE_TABLE, body, 0, frozenset({_ENOENT}))])


def add_elements(elements: Iterable[Element]) -> Sequence[NetlinkRequest]:
    """Requests that add elements to their sets. Elements that are there already stay."""
    return _batch([NetlinkRequest(_NEW_ELEMENT, _body(each), CREATE, frozenset({_EEXIST})) for each in elements])


def delete_element(element: Element) -> Sequence[NetlinkRequest]:
    """Requests that delete one element; no error when it is gone. One element alone, since the kernel would refuse all
    others with it."""
    return _batch([NetlinkRequest(_DELETE_ELEMENT, _body(element), 0, frozenset({_ENOENT}))])


def list_elements(family: int, table: str, name: str) -> NetlinkRequest:
    """A request for all elements of a set, to be dumped, and read by `read_keys`."""
    body = _nfgen(family, 0) + _attribute(_TABLE, _text(table)) + _attribute(_NAME, _text(name))
    return NetlinkRequest(_GET_ELEMENT, body, DUMP, ack=False)


def read_keys(body: bytes) -> Iterator[bytes]:
    """The keys of the elements in one message of the answer."""
    for elements in _find(body[_NFGEN_SIZE:], _ELEMENTS):
        for element in _find(elements, _LIST_ELEMENT):
            for key in _find(element, _KEY):
                yield from _find(key, _VALUE)


def list_counters(table: str) -> NetlinkRequest:
    """A request for all counters of a table, to be dumped, and read by `read_counters`. Other named objects of the
    table have no packets."""
    return NetlinkRequest(_GET_OBJECT, _nfgen(INET, 0) + _attribute(_TABLE, _text(table)), DUMP, ack=False)


def read_counters(body: bytes) -> Iterator[tuple[str, int]]:
    """The name and the number of packets of the counter in one message of the answer."""
    attributes = body[_NFGEN_SIZE:]
    name = next(_find(attributes, _OBJECT_NAME), b"").rstrip(b"\0").decode()
    for data in _find(attributes, _OBJECT_DATA):
        for packets in _find(data, _COUNTER_PACKETS):
            yield name, int.from_bytes(packets, "big")


def _find(attributes: bytes, wanted: int) -> Iterator[bytes]:
    at = 0
    while at + 4 <= len(attributes):
        length, kind = struct.unpack_from("=HH", attributes, at)
        if kind & _KIND == wanted:
            yield attributes[at + 4 : at + length]
        at += max(length + 3 & ~3, 4)


def _body(element: Element) -> bytes:
    key = _nested(_KEY, _attribute(_VALUE, element.key))
    table, name = _attribute(_TABLE, _text(element.table)), _attribute(_NAME, _text(element.set))
    return _nfgen(element.family, 0) + table + name + _nested(_ELEMENTS, _nested(_LIST_ELEMENT, key))


def _batch(requests: Sequence[NetlinkRequest]) -> Sequence[NetlinkRequest]:
    frame = _nfgen(0, socket.htons(10))
    return NetlinkRequest(_BATCH_BEGIN, frame, ack=False), *requests, NetlinkRequest(_BATCH_END, frame, ack=False)


def _nfgen(family: int, resource: int) -> bytes:
    return struct.pack("=BBH", family, 0, resource)


def _attribute(kind: int, payload: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def _nested(kind: int, payload: bytes) -> bytes:
    return _attribute(_NESTED | kind, payload)


def _text(value: str) -> bytes:
    return value.encode() + b"\0"
