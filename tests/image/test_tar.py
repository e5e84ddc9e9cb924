"""Facts about reading tar archives. What honest archives hold is told by Python's `tarfile` and by GNU tar."""

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.image.tar import (
    BLOCK,
    EntryKind,
    TarEntry,
    TarError,
    TarReader,
    checked_extents,
    number,
    parse_pax,
    pax_map_extents,
    seconds_to_ns,
    stream_extents,
    text,
)
from tests.fixtures.parts import directory, entry, hard_link, symlink, tar


@pytest.mark.parametrize(
    ("field", "wanted"),
    [(b"0000644\0", 0o644), (b"   644 \0", 0o644), (b"", 0), (b"\0" * 8, 0), (b"77777777777 ", 8 * 1024**3 - 1)],
)
def test_octal_is_read(field: bytes, wanted: int) -> None:
    assert number(field) == wanted


@given(st.integers(min_value=-(2**62), max_value=2**62))
def test_base_256_is_read_as_tarfile_writes_it(value: int) -> None:
    field = tarfile.itn(value, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
    assert number(field) == value


@pytest.mark.parametrize("field", [b"0x12", b"9", b"1_0", b"-1", b"+7", b"1 2", b"0" * 25])
def test_other_numbers_are_refused(field: bytes) -> None:
    with pytest.raises(TarError, match="cannot be read"):
        number(field)


@pytest.mark.parametrize("field", [b"-1", b"1_000", b"12e3", b"0x1f", b"1" * 25])
def test_decimals_are_plain_digits(field: bytes) -> None:
    assert number(b"1024", 10) == 1024
    with pytest.raises(TarError):
        number(field, 10)


def test_text_ends_at_the_first_zero() -> None:
    assert text(b"name\0rest") == b"name"
    assert text(b"whole") == b"whole"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(b"1", 10**9), (b"1.5", 1_500_000_000), (b"0.000000001", 1), (b"1.", 10**9), (b"2.1234567891", 2_123_456_789)],
)
def test_times_keep_their_nanoseconds(value: bytes, wanted: int) -> None:
    assert seconds_to_ns(value) == wanted


@pytest.mark.parametrize("value", [b"", b"now", b"1e9", b"1.5.5", b" 1"])
def test_other_times_are_refused(value: bytes) -> None:
    with pytest.raises(TarError, match="a time"):
        seconds_to_ns(value)


def read(archive: bytes) -> list[tuple[TarEntry, bytes]]:
    reader = TarReader(io.BytesIO(archive))
    return [(found, b"".join(iter(lambda: reader.read(100), b""))) for found in reader]


def one(archive: bytes) -> TarEntry:
    [(found, _)] = read(archive)
    return found


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_entries_are_read_in_every_format(format: int) -> None:
    info = entry("bin/tool", mode=0o4755, uid=1000, gid=2000, mtime=1_700_000_000)
    fifo, device = entry("pipe", type=tarfile.FIFOTYPE), entry("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)
    archive = tar(
        directory("bin"), (info, b"content"), symlink("link", "bin/tool"), hard_link("hard", "bin/tool"), fifo, device,
        format=format,
    )  # fmt: skip
    found = read(archive)
    assert [each.kind for each, _ in found] == [
        EntryKind.DIRECTORY, EntryKind.FILE, EntryKind.SYMLINK, EntryKind.HARD_LINK, EntryKind.FIFO, EntryKind.DEVICE,
    ]  # fmt: skip
    tool, content = found[1]
    assert (tool.name, tool.mode, tool.uid, tool.gid, tool.size) == (b"bin/tool", 0o4755, 1000, 2000, 7)
    assert (tool.mtime_ns, content) == (1_700_000_000 * 10**9, b"content")
    assert (found[2][0].link, found[3][0].link) == (b"bin/tool", b"bin/tool")


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_links_are_read(format: int) -> None:
    name, target = "d/" * 300 + "name", "t" * 500
    found = one(tar(symlink(name, target), format=format))
    assert (found.name, found.link) == (name.encode(), target.encode())


def test_ustar_prefix_is_joined_to_the_name() -> None:
    name = "a" * 80 + "/" + "b" * 80
    assert one(tar((name, b""), format=tarfile.USTAR_FORMAT)).name == name.encode()


def test_pax_records_go_before_the_header() -> None:
    found = one(tar(entry("x", pax_headers={"mtime": "1.25", "uid": "70000", "SCHILY.xattr.user.a": "b"})))
    assert (found.mtime_ns, found.uid, found.xattrs) == (1_250_000_000, 70000, (("user.a", b"b"),))


def test_file_whose_name_ends_in_a_slash_is_a_directory() -> None:
    assert one(tar(("old/", b""))).kind is EntryKind.DIRECTORY


def test_time_before_the_epoch_becomes_the_epoch() -> None:
    assert one(tar(entry("x", mtime=-5))).mtime_ns == 0


def test_global_header_is_passed_over(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "x"}) as archive:
        archive.addfile(entry("a"))
    assert one(buffer.getvalue()).name == b"a"


def test_content_that_is_not_read_is_passed_over() -> None:
    reader = TarReader(io.BytesIO(tar(("a", b"x" * 5000), ("b", b"y"))))
    assert [found.name for found in reader] == [b"a", b"b"]


def test_archive_without_an_end_mark_ends_with_its_last_entry() -> None:
    assert len(read(tar(("a", b"x"))[: 2 * BLOCK])) == 1
    assert read(b"") == []


def test_hundreds_of_real_files_are_read_as_gnu_tar_lists_them(tmp_path: Path) -> None:
    archive = tmp_path / "etc.tar"
    subprocess.run(["tar", "--sort=name", "-C", "/", "-cf", archive, "etc/alternatives", "etc/default"], check=True)
    listed = subprocess.run(["tar", "-tf", archive], check=True, capture_output=True).stdout.split(b"\n")[:-1]
    assert [found.name for found, _ in read(archive.read_bytes())] == listed


def _patched(offset: int, field: bytes, archive: bytes | None = None) -> bytes:
    """The first header with one field changed and the checksum made right again."""
    head = bytearray(archive or tar(("victim", b"x"), format=tarfile.USTAR_FORMAT))
    head[offset : offset + len(field)] = field
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head[:BLOCK])
    return bytes(head)


@pytest.mark.parametrize(
    ("archive", "says"),
    [
        (_patched(124, b"\xff" * 12), "a negative size"),
        (_patched(124, b"77777777777\0"), "cut off"),
        (_patched(108, b"\xff" * 8), "an owner id of -1"),
        (_patched(108, b"\x80\0\0\x01\0\0\0\0"), "an owner id of"),
        (_patched(100, b"rwxrwxr\0"), "a number that cannot be read"),
        (_patched(156, b"Z"), "unknown type"),
        (tar(("victim", b"x"))[:700], "cut off"),
        (tar(("victim", b"x"))[:100], "cut off"),
        (b"\x01" * BLOCK, "checksum"),
        (tar(entry("x", pax_headers={"comment": "y" * (1 << 20)})), "an extended header of"),
        (tar(("n" * 5000, b""), format=tarfile.GNU_FORMAT), "an extended header of"),
        (tar(("n" * 5000, b""), format=tarfile.PAX_FORMAT), "a name longer than"),
        (tar(symlink("x", "n" * 5000)), "a link target longer than"),
        (tar(entry("x", pax_headers={"size": "-1"})), "a number"),
        (tar(entry("x", pax_headers={"mtime": "soon"})), "a time"),
        (tar(entry("x", pax_headers={"GNU.sparse.offset": "0"})), "sparse"),
        (tar(entry("x", pax_headers={"GNU.sparse.map": "0,99999999999", "GNU.sparse.size": "1"})), "sparse"),
    ],
)
def test_hostile_archive_is_refused(archive: bytes, says: str) -> None:
    with pytest.raises(TarError, match=says):
        read(archive)


def test_error_tells_the_entry() -> None:
    with pytest.raises(TarError) as caught:
        read(_patched(108, b"\xff" * 8))
    assert caught.value.entry == b"victim"


def test_chain_of_extended_headers_is_refused() -> None:
    archive = tar(entry("x", pax_headers={"comment": "y"}))
    with pytest.raises(TarError, match="unknown type b'x'"):
        read(archive[: 2 * BLOCK] * 20 + archive)


@pytest.mark.parametrize("body", [b"x", b"5 a=", b"3 a\n", b"99 a=b\n", b"0 a=b\n", b"6 a=bc", b"6 =ab\n", b"-6 a=b\n"])
def test_bad_pax_records_are_refused(body: bytes) -> None:
    with pytest.raises(TarError):
        parse_pax(body)


@given(st.dictionaries(st.text("abc.", min_size=1), st.binary(max_size=200), max_size=5))
def test_pax_records_are_read_back(records: dict[str, bytes]) -> None:
    body = b"".join(_record(key.encode(), value) for key, value in records.items())
    assert parse_pax(body) == {key.encode(): value for key, value in records.items()}


def _record(key: bytes, value: bytes) -> bytes:
    rest = b" " + key + b"=" + value + b"\n"
    length = next(n for n in range(len(rest), len(rest) + 9) if len(str(n)) + len(rest) == n)
    return str(length).encode() + rest


@given(st.data())
def test_damage_is_an_error_or_another_archive_and_never_a_crash(data: st.DataObject) -> None:
    archive = bytearray(tar(directory("d"), (entry("d/f", pax_headers={"uid": "1"}), b"x" * 600), symlink("l", "d")))
    for _ in range(data.draw(st.integers(1, 8))):
        archive[data.draw(st.integers(0, len(archive) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read(bytes(archive[: data.draw(st.integers(0, len(archive)))]))
    except TarError:
        return
    assert all(each.size >= 0 for each, _ in found)


_FORMS = ["--format=gnu", "--format=posix --sparse-version=1.0", "--format=posix --sparse-version=0.1"]


@pytest.mark.parametrize("form", _FORMS)
def test_sparse_file_of_gnu_tar_is_read_back(tmp_path: Path, form: str) -> None:
    holes = tmp_path / "holes"
    with holes.open("wb") as file:
        for number in range(40):
            file.seek(number << 16)
            file.write(b"%4096d" % number)
        file.truncate(4 << 20)
    subprocess.run(["tar", "-C", tmp_path, "-S", *form.split(), "-cf", tmp_path / "a.tar", "holes"], check=True)
    reader = TarReader(io.BytesIO((tmp_path / "a.tar").read_bytes()))
    [entry] = [found for found in _read_all(reader, tmp_path / "back") if found]
    assert entry == (b"holes", 4 << 20)
    assert (tmp_path / "back").read_bytes() == holes.read_bytes()


def _read_all(reader: TarReader, target: Path) -> list[tuple[bytes, int]]:
    found = []
    for member in reader:
        found.append((member.name, member.size))
        with target.open("wb") as file:
            file.truncate(member.size)
            for offset, length in member.extents:
                file.seek(offset)
                file.write(reader.read(length))
    return found


@pytest.mark.parametrize(
    ("extents", "size", "stored"),
    [
        (((0, 10), (5, 10)), 20, 20),  # overlap
        (((10, 5), (0, 5)), 20, 10),  # descending
        (((0, 30),), 20, 30),  # outside
        (((0, 10),), 20, 20),  # fewer than stored
        (((0, -1),), 20, -1),
        ((), -1, 0),  # it would lower what the layer counts
    ],
)
def test_hostile_map_is_refused(extents: tuple[tuple[int, int], ...], size: int, stored: int) -> None:
    with pytest.raises(TarError, match="a sparse file whose"):
        checked_extents(extents, size, stored)


def test_map_of_odd_length_is_refused() -> None:
    with pytest.raises(TarError, match="map cannot be read"):
        pax_map_extents(b"0,1,2")


def test_map_with_too_many_pieces_is_refused_before_it_is_read() -> None:
    block = b"99999999\n".ljust(BLOCK, b"\0")
    with pytest.raises(TarError, match="more than 65536 pieces"):
        stream_extents(lambda count: block)


def test_map_without_numbers_is_refused() -> None:
    with pytest.raises(TarError, match="map cannot be read"):
        stream_extents(lambda count: b"x" * BLOCK)


def test_cut_off_map_is_refused() -> None:
    with pytest.raises(TarError, match="cut off"):
        stream_extents(lambda count: b"")
