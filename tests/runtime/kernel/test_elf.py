import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.runtime.kernel.elf import is_elf, read_elf
from tests.runtime.kernel.crafted import elf, vmlinux

FILE = elf(sections={b".modinfo": b"a=b\0", b".text": b"code"}, segments=((1, b"loaded"), (4, b"")))


def test_a_section_is_found_by_its_name() -> None:
    assert read_elf(FILE).section(b".modinfo") == b"a=b\0"
    assert read_elf(FILE).section(b".modinf") is None and read_elf(FILE).section(b"text") is None
    assert read_elf(vmlinux()).section(b".modinfo") is None


def test_a_note_is_found_by_its_owner_and_type() -> None:
    kernel = read_elf(vmlinux(pvh=True))
    assert kernel.has_note(b"Xen", 18) and not kernel.has_note(b"Xen", 5) and not kernel.has_note(b"GNU", 18)


def test_what_is_to_be_loaded_has_to_be_there() -> None:
    read_elf(FILE).check_loadable()
    with pytest.raises(ValueError, match="nothing to load"):
        read_elf(elf(sections={b".text": b"code"})).check_loadable()
    longer = bytearray(FILE)
    struct.pack_into("<Q", longer, 64 + 32, 1 << 40)  # the first segment's size in the file
    with pytest.raises(ValueError, match="cut off"):
        read_elf(bytes(longer)).check_loadable()


@pytest.mark.parametrize("data", [b"", b"\x7fELF\x01\x01\x01" + bytes(100), b"\x7fELF\x02\x01\x01", b"MZ" + bytes(100)])
def test_what_is_no_elf_of_64_bits_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an ELF file"):
        read_elf(data)
    assert not is_elf(data) or len(data) < 64


@given(st.binary(min_size=57, max_size=400), st.integers(0, 57))
def test_any_numbers_in_it_end_in_an_answer_or_a_refusal(noise: bytes, keep: int) -> None:
    data = FILE[: 7 + keep] + noise
    try:
        file = read_elf(data)
        file.section(b".modinfo")
        file.has_note(b"Xen", 18)
        file.check_loadable()
    except ValueError:
        return
