"""Files of this side that a machine's config names by digest: sent to the node before the machine is ordered."""

from collections.abc import AsyncIterator, Callable

import anyio

from hawker.api.caller import Caller
from hawker.api.contract.app_file import GET_APP_FILE, PUT_APP_FILE, AppFileParams, AppFileQuery
from hawker.cli.notation import LocalFile
from hawker.cli.progress import upload_display
from hawker.config import File, MachineConfig
from hawker.errors import NotFound

CHUNK_BYTES = 256 * 1024


async def upload(caller: Caller, app: str, config: MachineConfig, given: tuple[LocalFile, ...]) -> None:
    """Those of `given` that the config names, unless the node has them for the app."""
    local = {each.guest_path: each.local for each in given}
    for file in config.files or ():
        if file.digest and (file.guest_path or "") in local:
            await _upload(caller, app, file, local[file.guest_path or ""])


async def _upload(caller: Caller, app: str, file: File, name: str) -> None:
    params = AppFileParams(app_name=app, digest=file.digest or "")
    try:
        await caller.call(GET_APP_FILE, params=params)
    except NotFound:
        with upload_display(name, file.size) as sent:
            async with await anyio.open_file(name, "rb") as opened:
                query = AppFileQuery(size=file.size or 0)
                await caller.upload(PUT_APP_FILE, chunks(opened, sent), params=params, query=query)


async def chunks(source: anyio.AsyncFile[bytes], sent: Callable[[int], None]) -> AsyncIterator[bytes]:
    """What is left of it; `sent` is told how many bytes went."""
    while chunk := await source.read(CHUNK_BYTES):
        yield chunk
        sent(len(chunk))
