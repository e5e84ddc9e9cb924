"""Answers about files that are uploaded for the machines of apps, and pieces of them for other nodes."""

from collections.abc import AsyncIterator
from functools import partial

from hawker.api.contract.app_file import (
    GET_APP_FILE,
    HAND_APP_FILE,
    PUT_APP_FILE,
    AppFile,
    AppFileParams,
    AppFileQuery,
    HandedFileParams,
    HandedFileQuery,
)
from hawker.api.contract.image import PIECE_BYTES
from hawker.api.handlers import answers
from hawker.api.route import Call, NoQuery
from hawker.errors import NotFound, NotServed, Unprocessable
from hawker.fair.table import HANDOVERS
from hawker.fair.threads import Pool, in_thread
from hawker.fair.turns import Turns
from hawker.quota.quotas import Quotas
from hawker.record.org import Amount
from hawker.store.contract import Store
from hawker.worker.app_files import AppFiles
from hawker.worker.apps import AppTable

_MIB = 1 << 20


class AppFileHandlers:
    """`files` is None on a node that keeps none."""

    def __init__(self, store: Store, apps: AppTable, quotas: Quotas, files: AppFiles | None) -> None:
        self._store = store
        self._apps = apps
        self._quotas = quotas
        self._kept = files
        self._handovers = Turns(HANDOVERS)

    @answers(GET_APP_FILE)
    async def get(self, call: Call[AppFileParams, NoQuery, None]) -> AppFile:
        app = self._apps.get(self._store, call.params.app_name)
        size = self._files.size_of(app.id, call.params.digest)
        if size is None:
            raise NotFound(f"file {call.params.digest} was not uploaded for app '{app.name}'")
        return AppFile(digest=call.params.digest, size=size)

    @answers(PUT_APP_FILE)
    async def put(self, call: Call[AppFileParams, AppFileQuery, None], data: AsyncIterator[bytes]) -> AppFile:
        app, digest, size = self._apps.get(self._store, call.params.app_name), call.params.digest, call.query.size
        if size is None:
            raise Unprocessable("size: say how many bytes come")
        if self._files.size_of(app.id, digest) is None:
            more = Amount(disk_mb=-(-size // _MIB))
            await self._store.write(partial(self._quotas.check, app=app.name, more=more))
        await self._files.receive(app.id, digest, size, data)
        return AppFile(digest=digest, size=size)

    @answers(HAND_APP_FILE)
    async def hand(self, call: Call[HandedFileParams, HandedFileQuery, None]) -> bytes:
        """The name under which another node asks is the node's."""
        offset, count = max(0, call.query.offset), min(max(0, call.query.count), PIECE_BYTES)
        async with self._handovers.hold(f"node {call.caller}"):
            return await in_thread(
                Pool.IMAGES, self._files.piece, call.params.app_id, call.params.digest, offset, count
            )

    @property
    def _files(self) -> AppFiles:
        if self._kept is None:
            raise NotServed("this node keeps no uploaded files")
        return self._kept
