"""An image that is unpacked while its layers come, so that its block image is made as soon as the last one is verified.

Nothing depends on it: where it fails, for whatever reason, or finds no turn, the image is unpacked after its download,
and that says what is wrong. Invariant: a block image is made only of bytes that were verified: every layer is, and none
was begun anew after something of it had been read.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from types import MappingProxyType

import anyio
from msgspec.structs import replace

from hawker.errors import HawkerError, OverShare
from hawker.failpoint import enter
from hawker.fair.table import BUILDS_WHILE_IT_COMES
from hawker.fair.threads import whose
from hawker.fair.turns import Turns
from hawker.ids import Digest
from hawker.image.blobs import ArrivingBlob, BlobLost
from hawker.image.block_image import Blocks
from hawker.image.contents import ImageContents
from hawker.image.manifest import Manifest
from hawker.image.progress import PullProgress, Report
from hawker.image.unpack import LayerBlob
from hawker.keyed_locks import KeyedLocks
from hawker.log import bind

_log = bind("hawker.image")
_NODE = "the node"  # which has no more at once than anybody
_NOBODY: Mapping[Digest, ArrivingBlob] = MappingProxyType({})


class EarlyBuilds:
    """The early builds of one cache, for images of which `least_bytes` or more are missing. `building` and `builds` are
    those of all builds: an early one takes its turn among them only once its layers are here, so that no build waits
    for somebody's download."""

    def __init__(
        self,
        contents: ImageContents,
        blocks: Blocks,
        building: KeyedLocks[Digest],
        builds: Turns,
        least_bytes: int,
    ) -> None:
        self._contents = contents
        self._blocks = blocks
        self._building = building
        self._builds = builds
        self._least_bytes = least_bytes
        self._slots = Turns(BUILDS_WHILE_IT_COMES)

    @asynccontextmanager
    async def during(
        self, digest: Digest, manifest: Manifest, report: Report
    ) -> AsyncIterator[Mapping[Digest, ArrivingBlob]]:
        """The download of an image, which tells the blobs that it is given here how far it is. At the end of the block
        all layers are verified, and the build ends; an error there gives it up."""
        with ExitStack() as slot:
            if not self._is_worth_it(digest, manifest) or not self._has_turn(slot):
                yield _NOBODY
                return
            arriving = {layer.digest: ArrivingBlob(layer.size) for layer in manifest.layers}
            layers = self._contents.layers(manifest)
            coming = [replace(layer, arriving=arriving[layer.digest]) for layer in layers]
            async with self._beside(digest, coming, arriving, report):
                yield arriving

    def _is_worth_it(self, digest: Digest, manifest: Manifest) -> bool:
        """Not while the image is being built: who does that may be the one that fetches, and waits for it."""
        missing = self._blocks.wanted and self._blocks.find(digest) is None and digest not in self._building.busy()
        return missing and self._contents.missing_bytes(manifest) >= self._least_bytes

    def _has_turn(self, slot: ExitStack) -> bool:
        with suppress(OverShare):
            slot.enter_context(self._slots.hold_now(whose() or _NODE))
            return True
        return False

    @asynccontextmanager
    async def _beside(
        self, digest: Digest, coming: Sequence[LayerBlob], arriving: Mapping[Digest, ArrivingBlob], report: Report
    ) -> AsyncIterator[None]:
        verified, failures = anyio.Event(), list[HawkerError | OSError]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._build, digest, coming, verified, report)
            try:
                yield
                verified.set()
            except (HawkerError, OSError) as error:
                failures.append(error)
                tasks.cancel_scope.cancel()
            finally:
                for blob in arriving.values():
                    blob.lose()  # those that are not verified
        if failures:
            raise failures[0]

    async def _build(self, digest: Digest, coming: Sequence[LayerBlob], verified: anyio.Event, report: Report) -> None:
        """Says how far it is once nothing is downloaded any more."""
        enter("")  # the step of the run that pulls is where its download is

        def tell(progress: PullProgress) -> None:
            if verified.is_set():
                report(progress)

        @asynccontextmanager
        async def turn() -> AsyncIterator[bool]:
            await verified.wait()
            if any(layer.arriving is not None and layer.arriving.is_lost for layer in coming):
                raise BlobLost("a layer was begun anew while it was unpacked")
            async with self._building.hold(digest), self._builds.hold(whose() or _NODE):
                yield self._blocks.find(digest) is None

        try:
            await self._blocks.make(digest, coming, tell, turn)
        except (HawkerError, OSError, BlobLost) as error:
            _log.info("image is unpacked after its download", extra={"image": digest, "reason": str(error)})
