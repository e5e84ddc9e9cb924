"""Where the stored bytes of a sparse file go, in the forms that GNU tar writes (its manual, "Sparse Formats")."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from hawker.image.tarfield import BLOCK, TarError, number

Extents: TypeAlias = tuple[tuple[int, int], ...]
"""(offset, length) pairs, ascending."""

_LIMIT = 65_536
_Read: TypeAlias = Callable[[int], bytes]


def gnu_extents(head: bytes, read: _Read) -> tuple[int, Extents]:
    """The old form: four pairs in the header, more in blocks that follow it. Gives the file's size as well."""
    pairs = list(_fields(head, 386, 4))
    more = head[482]
    while more:
        block = read(BLOCK)
        if len(block) < BLOCK:
            raise TarError("the archive is cut off")
        pairs.extend(_fields(block, 0, 21))
        _check_count(len(pairs))
        more = block[504]
    return number(head[483:495]), tuple(pair for pair in pairs if pair != (0, 0))


def _fields(block: bytes, start: int, count: int) -> Iterable[tuple[int, int]]:
    for at in range(start, start + 24 * count, 24):
        yield number(block[at : at + 12]), number(block[at + 12 : at + 24])


def pax_map_extents(value: bytes) -> Extents:
    """Form 0.1: `offset,length,offset,length` in a pax record."""
    return _pairs([number(part, 10) for part in value.split(b",")])


def stream_extents(read: _Read) -> Extents:
    """Form 1.0: numbers, one a line, in whole blocks before the data; the first is the number of pairs."""
    lines: list[bytes] = []
    rest = b""
    wanted = 1
    while len(lines) < wanted:
        block = read(BLOCK)
        if len(block) < BLOCK:
            raise TarError("a sparse file's map is cut off")
        *whole, rest = (rest + block).split(b"\n")
        lines.extend(whole)
        if lines:
            count = number(lines[0], 10)
            _check_count(count)
            wanted = 1 + 2 * count
        elif len(rest) > BLOCK:
            raise TarError("a sparse file's map cannot be read")
    return _pairs([number(line, 10) for line in lines[1:wanted]])


def _pairs(numbers: list[int]) -> Extents:
    _check_count(len(numbers) // 2)
    if len(numbers) % 2:
        raise TarError("a sparse file's map cannot be read")
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _check_count(count: int) -> None:
    if count > _LIMIT:
        raise TarError(f"a sparse file of more than {_LIMIT} pieces")


def checked_extents(extents: Extents, size: int, stored: int) -> Extents:
    """Ascending, without overlap, within the file, and as long as what is stored. Raises `TarError`."""
    end = 0
    for offset, length in extents:
        if offset < end or length < 0 or offset + length > size:
            raise TarError("a sparse file whose pieces overlap or lie outside of it")
        end = offset + length
    if sum(length for _, length in extents) != stored:
        raise TarError("a sparse file whose map does not match its bytes")
    return extents
