"""Kernels and modules made by hand: as small as what reads them allows, and wrong in every way that a test wants."""

import struct
from pathlib import Path

RELEASE = "6.1.0-test"


def module(release: str = RELEASE, *, needs: str = "", soft: str = "", aliases: tuple[str, ...] = ()) -> bytes:
    """A module's file that says of itself what these are."""
    lines = [f"vermagic={release} SMP mod_unload", f"depends={needs}", *(f"alias={alias}" for alias in aliases)]
    lines += [f"softdep={soft}"] if soft else []
    return elf(sections={b".modinfo": "\0".join(lines).encode() + b"\0"})


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


def lay(directory: Path, modules: dict[str, bytes], builtin: str = "", builtin_aliases: str = "") -> Path:
    """As a distribution has them: files by their paths, and the lists of what is built in."""
    for path, content in modules.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)
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
