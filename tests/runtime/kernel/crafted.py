"""Kernels and modules made by hand: as small as what reads them allows, and wrong in every way that a test wants."""

import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

RELEASE = "6.1.0-test"


@dataclass(frozen=True, slots=True)
class Module:
    """A module's file, in the making: it has one symbol, named after itself, and uses those of what it needs."""

    release: str
    needs: str
    soft: str
    aliases: tuple[str, ...]

    def built(self, name: str) -> bytes:
        lines = [f"name={name}", f"vermagic={self.release} SMP mod_unload", f"depends={self.needs}"]
        lines += [f"alias={alias}" for alias in self.aliases] + ([f"softdep={self.soft}"] if self.soft else [])
        symbols = [(f"__crc_of_{name}", 0xFFF1), *((f"of_{need}", 0) for need in self.needs.split(",") if need)]
        strings = b"\0" + b"".join(text.encode() + b"\0" for text, _ in symbols)
        rows = (
            struct.pack("<IBBHQQ", strings.index(f"\0{text}\0".encode()) + 1, 1 << 4, 0, at, 1, 0)
            for text, at in symbols
        )
        info = "\0".join(lines).encode() + b"\0"
        return elf(sections={b".modinfo": info, b".strtab": strings, b".symtab": bytes(24) + b"".join(rows)})


def module(release: str = RELEASE, *, needs: str = "", soft: str = "", aliases: tuple[str, ...] = ()) -> Module:
    """One that says of itself what these are."""
    return Module(release=release, needs=needs, soft=soft, aliases=aliases)


def lz4(data: bytes) -> bytes:
    """As a kernel's build packs it."""
    return subprocess.run(["lz4", "-lcq"], input=data, capture_output=True, check=True).stdout


def requires(*programs: str) -> pytest.MarkDecorator:
    """Skips where one of them is not installed; `make setup` does that."""
    lacks = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(lacks), reason=f"not installed: {', '.join(lacks)}")


def vmlinux(release: str = RELEASE, *, pvh: bool = True, banner: bool = True) -> bytes:
    """One segment to load with the banner in it, and one of notes."""
    text = f"Linux version {release} (someone@somewhere)".encode() if banner else b"nothing"
    note = struct.pack("<III", 4, 4, 18 if pvh else 5) + b"Xen\0" + bytes(4)
    return elf(segments=((1, text), (4, note)))


def bzimage(release: str = RELEASE, *, payload: bytes, inner: int = 0) -> bytes:
    """Five sectors of setup, of which the header is the part that is read, and a payload. `inner` moves its length."""
    setup = bytearray(5 * 512)
    setup[0x1F1] = 4
    setup[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", setup, 0x206, 0x020F)
    struct.pack_into("<H", setup, 0x20E, 0x400)
    struct.pack_into("<II", setup, 0x248, 64, len(payload) + inner)
    text = f"{release} (someone@somewhere) #1\0".encode()
    setup[0x600 : 0x600 + len(text)] = text
    return bytes(setup) + bytes(64) + payload


def elf(*, sections: dict[bytes, bytes] | None = None, segments: tuple[tuple[int, bytes], ...] = ()) -> bytes:
    """64 bits, little-endian, x86-64. Sections by name; segments by type."""
    named = {b"": b"", **(sections or {})}
    names = b"".join(name + b"\0" for name in named) + b".shstrtab\0"
    named[b".shstrtab"] = names
    body, offsets = b"", []
    start = 64 + 56 * len(segments)
    for content in (*(content for _, content in segments), *named.values()):
        offsets.append(start + len(body))
        body += content
    heads = b"".join(
        struct.pack("<IIQQQQQQ", kind, 5, at, 0, 0, len(content), len(content), 1)
        for (kind, content), at in zip(segments, offsets, strict=False)
    )
    table = b"".join(
        struct.pack(
            "<IIQQQQIIQQ", names.index(name + b"\0") if name else 0, bool(name), 0, 0, at, len(content), 0, 0, 1, 0
        )
        for (name, content), at in zip(named.items(), offsets[len(segments) :], strict=True)
    )
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        ident,
        1,
        62,
        1,
        0,
        64,
        start + len(body),
        0,
        64,
        56,
        len(segments),
        64,
        len(named),
        len(named) - 1,
    )
    return header + heads + body + table


def lay(directory: Path, modules: Mapping[str, Module | bytes], builtin: str = "", builtin_aliases: str = "") -> Path:
    """As a distribution has them: files by their paths, and the lists of what is built in."""
    for path, content in modules.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        name = Path(path).name.removesuffix(".ko").replace("-", "_")
        (directory / path).write_bytes(content if isinstance(content, bytes) else content.built(name))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "modules.builtin").write_text("".join(f"kernel/x/{name}.ko\n" for name in builtin.split()))
    (directory / "modules.builtin.modinfo").write_text(builtin_aliases)
    return directory


def whole_tree(directory: Path, release: str = RELEASE) -> Path:
    """With everything that machines need."""
    plain = "virtio_mmio virtio_blk virtio_console overlay virtio_pci virtio_balloon vmw_vsock_virtio_transport".split()
    modules = {f"kernel/{name}.ko": module(release, needs="virtio" if "vi" in name else "") for name in plain}
    modules["kernel/virtio.ko"] = module(release)
    modules["kernel/net/virtio_net.ko"] = module(release, needs="virtio,failover")
    modules["kernel/net/failover.ko"] = module(release)
    modules["kernel/fs/erofs.ko"] = module(release, needs="libcrc32c")
    modules["kernel/lib/libcrc32c.ko"] = module(release, soft="pre: crc32c")
    modules["kernel/char/virtio-rng.ko"] = module(release, needs="virtio")
    return lay(directory, modules, "ext4 crc32c_generic", "crc32c_generic.alias=crc32c\0ext4.license=GPL\0")


def read_cpio(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Name, mode and content of each member, up to the trailer, after which are only zeros."""
    at = 0
    while True:
        assert data[at : at + 6] == b"070701" and at % 4 == 0
        fields = [int(data[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        name = data[at + 110 : at + 110 + fields[11] - 1].decode()
        assert data[at + 110 + fields[11] - 1] == 0
        start = at + 110 + fields[11] + -(110 + fields[11]) % 4
        at = start + fields[6] + -fields[6] % 4
        if name == "TRAILER!!!":
            assert not data[at:].strip(b"\0")
            return
        assert (fields[2], fields[3], fields[5]) == (0, 0, 0), "of root, of no time"
        yield name, fields[1], data[start : start + fields[6]]
