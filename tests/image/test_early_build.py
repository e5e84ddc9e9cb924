"""Facts about images that are unpacked while they come: made no sooner than verified, and the same as any other."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from hawker.fair.table import BUILDS
from hawker.fair.turns import Turns
from hawker.ids import Digest
from hawker.image.blobs import ArrivingBlob, BlobLost, BlobStore
from hawker.image.block_image import Blocks, Staging
from hawker.image.cache import ImageCache
from hawker.image.config import Layer
from hawker.image.contents import ImageContents
from hawker.image.early_build import EarlyBuilds
from hawker.image.failure import BadImage
from hawker.image.limits import BlockChoice, ImageLimits, ImageSettings
from hawker.image.manifest import Manifest
from hawker.image.progress import PullProgress, PullStage, silent
from hawker.keyed_locks import KeyedLocks
from tests.fixtures.parts import ImageParts, layer, sha256, tar
from tests.image.fake_registry import FakeRegistry
from tests.image.images import architecture, opened_cache
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]

_ID = Digest("sha256:" + "a" * 64)
_TAR = "application/vnd.oci.image.layer.v1.tar"
_IMAGE = ImageParts(
    [layer(tar(("one", os.urandom(3 << 20)))), layer(tar(("two", b"2" * 5000), ("three", os.urandom(100))))],
    {"Cmd": ["/one"]},
    architecture(),
)


@asynccontextmanager
async def pulling(folder: Path, least_bytes: int) -> AsyncIterator[ImageCache]:
    async with opened_cache(folder, ImageSettings(early_bytes=least_bytes)) as cache:
        yield cache


def leftovers(folder: Path) -> list[Path]:
    """What is staged, and block images."""
    places = (folder / "images/staging", folder / "images/rootfs", folder / "images/blobs/sha256")
    return [path for place in places for path in place.iterdir()]


async def test_an_early_image_is_the_one_that_is_made_after_its_download(fake: FakeRegistry, tmp_path: Path) -> None:
    reference, found = fake.add("app", "v1", _IMAGE), []
    for least in (0, 1 << 40):
        async with pulling(tmp_path / str(least), least) as cache:
            image = await cache.pull(reference)
            found.append(cache.block_path(image.digest).read_bytes())
    assert found[0] == found[1]


async def test_progress_names_one_phase_after_the_other_and_moves_in_each(fake: FakeRegistry, tmp_path: Path) -> None:
    seen: list[PullProgress] = []
    async with pulling(tmp_path, 0) as cache:
        await cache.pull(fake.add("app", "v1", _IMAGE), progress=seen.append)
    stages = list(dict.fromkeys(each.stage for each in seen))
    ended = [each.stage for each, following in pairwise(seen) if each.stage != following.stage]
    assert ended == stages[:-1]  # none comes back
    assert stages[-2:] == [PullStage.BUILDING, PullStage.DONE] and PullStage.DOWNLOADING in stages


async def test_a_layer_that_is_not_what_it_says_is_never_made(fake: FakeRegistry, tmp_path: Path) -> None:
    reference = fake.add("app", "v1", _IMAGE)
    wrong = _IMAGE.layers[1].digest
    content = fake.blobs[wrong]
    fake.blobs[wrong] = content[:-1] + bytes([content[-1] ^ 1])
    async with pulling(tmp_path, 0) as cache:
        with pytest.raises(BadImage, match="does not match its digest"):
            await cache.pull(reference)
        assert [path for path in leftovers(tmp_path) if path.parent.name != "sha256"] == []
        fake.blobs[wrong] = content
        assert (await cache.pull(reference)).rootfs_bytes > 0


async def test_a_download_that_begins_anew_is_unpacked_afterwards(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.ranges, fake.cuts = "ignored", [0, 0, 2 << 20]
    async with pulling(tmp_path, 0) as cache:
        assert (await cache.pull(fake.add("app", "v1", _IMAGE))).rootfs_bytes > 0
    assert list((tmp_path / "images/staging").iterdir()) == []


# By hand.


@pytest.fixture
def blocks(tmp_path: Path) -> Blocks:
    staging = Staging(tmp_path / "staging", tmp_path / "no tmpfs")
    staging.clear()
    made = Blocks(tmp_path, BlockChoice.AUTO, staging, ImageLimits())
    made.open()
    return made


@pytest.fixture
def early(blocks: Blocks, tmp_path: Path) -> EarlyBuilds:
    contents = ImageContents(BlobStore(tmp_path), ImageLimits())
    return EarlyBuilds(contents, blocks, KeyedLocks(), Turns(BUILDS), 0)


_TARS = (tar(("a", b"x" * 40_000)), tar(("b", b"y" * 9)))
_LAYERS = tuple(Layer(digest=Digest(sha256(each)), size=len(each), media_type=_TAR) for each in _TARS)
_MANIFEST = Manifest(config=_LAYERS[0], layers=_LAYERS)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """The layers, as a download leaves them."""
    found = [tmp_path / f"layer{number}" for number in range(2)]
    for file, content in zip(found, _TARS, strict=True):
        file.write_bytes(content)
    return found


async def test_layers_are_unpacked_before_the_last_one_has_come(
    early: EarlyBuilds, blocks: Blocks, files: list[Path], tmp_path: Path
) -> None:
    async with early.during(_ID, _MANIFEST, silent) as arriving:
        first, second = (arriving[layer.digest] for layer in _LAYERS)
        first.whole(files[0])
        await eventually(lambda: [each.stat().st_size for each in (tmp_path / "staging").glob("*/pool/*")] == [40_000])
        assert blocks.find(_ID) is None
        second.grew(files[1], _LAYERS[1].size)
        await eventually(lambda: len(list((tmp_path / "staging").glob("*/root/*"))) == 2)
        assert blocks.find(_ID) is None  # it is there, and not verified
        second.whole(files[1])
    assert blocks.find(_ID) is not None
    assert list((tmp_path / "staging").iterdir()) == []


async def test_a_download_that_fails_leaves_nothing(
    early: EarlyBuilds, blocks: Blocks, files: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(BadImage, match="no"):
        async with early.during(_ID, _MANIFEST, silent) as arriving:
            arriving[_LAYERS[0].digest].whole(files[0])
            await eventually(lambda: list((tmp_path / "staging").glob("*/pool/*")))
            raise BadImage("no")
    assert blocks.find(_ID) is None and list((tmp_path / "staging").iterdir()) == []


async def test_a_pull_that_is_cancelled_ends_its_unpacking(early: EarlyBuilds, tmp_path: Path) -> None:
    with anyio.fail_after(120), anyio.CancelScope() as scope:
        async with early.during(_ID, _MANIFEST, silent):
            await eventually(lambda: list((tmp_path / "staging").glob("*/pool")))
            scope.cancel()
            await anyio.sleep_forever()
    assert list((tmp_path / "staging").iterdir()) == []


async def test_an_organization_has_one_early_build_at_once(early: EarlyBuilds, files: list[Path]) -> None:
    async with early.during(_ID, _MANIFEST, silent) as mine:
        async with early.during(_ID, _MANIFEST, silent) as others:
            assert mine and not others
        for layer, file in zip(_LAYERS, files, strict=True):
            mine[layer.digest].whole(file)


async def test_bytes_that_were_read_before_a_layer_began_anew_are_in_no_block_image(
    early: EarlyBuilds, blocks: Blocks, files: list[Path], tmp_path: Path
) -> None:
    """A tar that ends early, of which the reader is content before the download knows that it was another's."""
    wrong = tmp_path / "wrong"
    wrong.write_bytes(tar(("evil", b"z" * 100)).ljust(_LAYERS[0].size, b"\0"))
    async with early.during(_ID, _MANIFEST, silent) as arriving:
        first, second = (arriving[layer.digest] for layer in _LAYERS)
        first.grew(wrong, _LAYERS[0].size)
        second.grew(files[1], _LAYERS[1].size)
        await eventually(lambda: len(list((tmp_path / "staging").glob("*/root/*"))) == 2)
        first.lose()
        first.whole(files[0])
        second.whole(files[1])
    assert blocks.find(_ID) is None and list((tmp_path / "staging").iterdir()) == []


async def test_a_reader_of_a_file_that_was_cut_off_does_not_take_that_for_its_end(tmp_path: Path) -> None:
    file, blob = tmp_path / "layer", ArrivingBlob(100)
    file.write_bytes(b"x" * 60)
    blob.grew(file, 60)
    with blob.open() as reader:
        assert len(reader.read(60)) == 60
        blob.grew(file, 80)  # and then it is begun anew, before the reader hears
        with pytest.raises(BlobLost):
            reader.read(20)


async def test_an_image_that_is_being_built_is_not_unpacked_beside_that(
    blocks: Blocks, files: list[Path], tmp_path: Path
) -> None:
    """Who builds fetches what was pruned meanwhile, and would wait for itself."""
    building = KeyedLocks[Digest]()
    early = EarlyBuilds(ImageContents(BlobStore(tmp_path), ImageLimits()), blocks, building, Turns(BUILDS), 0)
    async with building.hold(_ID), early.during(_ID, _MANIFEST, silent) as arriving:
        assert not arriving
