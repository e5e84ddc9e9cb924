"""Reading ELF files of 64 bits, little-endian: a module's sections, a kernel's notes. Trusts no number in them."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_MAGIC = b"\x7fELF\x02\x01\x01"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_NOTE = struct.Struct("<III")
_PT_LOAD, _PT_NOTE = 1, 4
_SHT_NOBITS = 8


@dataclass(frozen=True, slots=True)
class Elf:
    """A file whose header has been read. Every look at it raises `ValueError` for what is not in the file."""

    data: bytes
    machine: int  # 62: x86-64, 183: aarch64
    segments: tuple[int, int]  # where their table is, and how many
    sections: tuple[int, int, int]  # the same, and which one holds the names

    def section(self, name: bytes) -> bytes | None:
        """Its content; None when there is none of that name."""
        at, count, names_at = self.sections
        if names_at >= count:
            return None
        heads = [_SECTION.unpack(self._piece(at + number * _SECTION.size, _SECTION.size)) for number in range(count)]
        names = self._piece(heads[names_at][4], heads[names_at][5])
        for head in heads:
            if names[head[0] : names.find(b"\0", head[0])] == name and head[1] != _SHT_NOBITS:
                return self._piece(head[4], head[5])
        return None

    def has_note(self, owner: bytes, kind: int) -> bool:
        return any(found == (owner, kind) for found in self._notes())

    def check_loadable(self) -> None:
        """All that is loaded is in the file."""
        loaded = [head for head in self._segment_heads() if head[0] == _PT_LOAD]
        if not loaded:
            raise ValueError("an ELF file with nothing to load")
        for head in loaded:
            self._piece(head[2], head[5])

    def _notes(self) -> Iterator[tuple[bytes, int]]:
        for head in self._segment_heads():
            if head[0] == _PT_NOTE:
                notes, at = self._piece(head[2], head[5]), 0
                while at + _NOTE.size <= len(notes):
                    name_size, size, kind = _NOTE.unpack_from(notes, at)
                    at += _NOTE.size
                    yield notes[at : at + name_size].rstrip(b"\0"), kind
                    at += _up(name_size) + _up(size)

    def _segment_heads(self) -> Iterator[tuple[int, ...]]:
        at, count = self.segments
        for number in range(count):
            yield _SEGMENT.unpack(self._piece(at + number * _SEGMENT.size, _SEGMENT.size))

    def _piece(self, at: int, size: int) -> bytes:
        if at + size > len(self.data):
            raise ValueError("an ELF file that is cut off")
        return self.data[at : at + size]


def read_elf(data: bytes) -> Elf:
    """Raises `ValueError` when it is none of 64 bits, little-endian."""
    if not is_elf(data) or len(data) < _HEADER.size:
        raise ValueError("not an ELF file of 64 bits")
    head = _HEADER.unpack_from(data)
    return Elf(data=data, machine=head[2], segments=(head[5], head[10]), sections=(head[6], head[12], head[13]))


def is_elf(data: bytes) -> bool:
    return data.startswith(_MAGIC)


def _up(size: int) -> int:
    return size + -size % 4
