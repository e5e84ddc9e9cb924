"""Facts about unpacking one blob's bytes."""

import gzip
import threading
from pathlib import Path

import pytest
import zstandard

from hawker.image.inflate import Brake, InflateError, inflated, sniff
from hawker.image.limits import MIB, ImageLimits
from hawker.image.manifest import Compression

_CONTENT = bytes(range(256)) * 4000
_PACKERS = {
    Compression.NONE: lambda content: content,
    Compression.GZIP: gzip.compress,
    Compression.ZSTD: zstandard.compress,
}


def unpack(path: Path, blob: bytes, compression: Compression, limits: ImageLimits | None = None) -> bytes:
    path.write_bytes(blob)
    allowed = limits or ImageLimits()
    brake = Brake(len(blob), allowed.max_layer_bytes, allowed, lambda: None)
    with inflated(path, compression, brake) as stream:
        return stream.read()


@pytest.mark.parametrize("compression", Compression)
def test_content_comes_back(tmp_path: Path, compression: Compression) -> None:
    packed = _PACKERS[compression](_CONTENT)
    assert unpack(tmp_path / "blob", packed, compression) == _CONTENT
    assert sniff(packed[:8]) is compression


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZSTD])
def test_pieces_packed_one_after_the_other_are_one(tmp_path: Path, compression: Compression) -> None:
    packed = _PACKERS[compression](b"one") + _PACKERS[compression](b"two")
    assert unpack(tmp_path / "blob", packed, compression) == b"onetwo"


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZSTD])
@pytest.mark.parametrize("junk", [b"no", b"x" * 99])
def test_layer_of_another_compression_is_told(tmp_path: Path, compression: Compression, junk: bytes) -> None:
    with pytest.raises(InflateError, match=f"is not intact {compression.value}"):
        unpack(tmp_path / "blob", junk + _PACKERS[compression](_CONTENT), compression)


def test_cut_is_told(tmp_path: Path) -> None:
    with pytest.raises(InflateError, match="is not intact gzip"):
        unpack(tmp_path / "blob", gzip.compress(_CONTENT)[:-20], Compression.GZIP)


def test_wrong_checksum_is_told(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(_CONTENT))
    packed[-6] ^= 1
    with pytest.raises(InflateError, match="is not intact gzip"):
        unpack(tmp_path / "blob", bytes(packed), Compression.GZIP)


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZSTD])
def test_bomb_is_stopped_by_its_proportion(tmp_path: Path, compression: Compression) -> None:
    packed = _PACKERS[compression](bytes(64 * MIB))
    with pytest.raises(InflateError, match="a decompression bomb"):
        unpack(tmp_path / "blob", packed, compression, ImageLimits(ratio_free_bytes=4 * MIB, max_ratio=10))


def test_bomb_is_stopped_by_its_size(tmp_path: Path) -> None:
    with pytest.raises(InflateError, match=f"unpacks to more than {MIB} bytes"):
        unpack(tmp_path / "blob", gzip.compress(bytes(2 * MIB)), Compression.GZIP, ImageLimits(max_layer_bytes=MIB))


def test_window_larger_than_a_limit_is_refused(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=29)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = packer.compress(_CONTENT) + packer.flush()
    with pytest.raises(InflateError, match="is not intact zstd"):
        unpack(tmp_path / "blob", packed, Compression.ZSTD)


def test_work_is_given_up_when_asked(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(_CONTENT)

    def stop() -> None:
        raise InterruptedError

    with (
        pytest.raises(InterruptedError),
        inflated(tmp_path / "blob", Compression.NONE, Brake(1, 10**9, ImageLimits(), stop)) as stream,
    ):
        stream.read()


def test_thread_that_inflates_ends_with_whoever_reads_however_little_was_read(tmp_path: Path) -> None:
    """Others of this process end when they like."""
    (tmp_path / "blob").write_bytes(gzip.compress(bytes(64 * MIB)))
    allowed, before = ImageLimits(), set(threading.enumerate())
    brake = Brake(64 * MIB, allowed.max_layer_bytes, allowed, lambda: None)
    with pytest.raises(InterruptedError), inflated(tmp_path / "blob", Compression.GZIP, brake) as stream:
        assert stream.read(1) == b"\0" and len(set(threading.enumerate()) - before) == 1
        raise InterruptedError
    assert not set(threading.enumerate()) - before
