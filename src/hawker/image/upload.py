"""An archive that a client uploads: taken in up to a limit, and given a name."""

from collections.abc import AsyncIterator
from pathlib import Path

from anyio.to_thread import run_sync

from hawker.errors import TooLarge
from hawker.image.failure import BadImage, disk_room
from hawker.image.reference import RegistryReference, parse

_BATCH = 1 << 20


async def receive(stream: AsyncIterator[bytes], file: Path, most: int) -> None:
    """Raises `TooLarge` and `NoRoom`; the caller removes the file."""
    received = 0
    batch = bytearray()
    with disk_room("taking in an upload"), file.open("wb") as sink:
        async for chunk in stream:
            received += len(chunk)
            if received > most:
                raise TooLarge(f"the archive is over {most} bytes")
            batch += chunk
            if len(batch) >= _BATCH:
                await run_sync(sink.write, bytes(batch))
                batch.clear()
        await run_sync(sink.write, bytes(batch))


def archive_name(given: str | None, own: str) -> RegistryReference | None:
    """What to call an imported image: the name given, else its own if that is one. Raises `BadImage` for a bad name."""
    if given:
        reference = parse(given)
        if not isinstance(reference, RegistryReference) or reference.digest:
            raise BadImage(f"an imported image needs a name like app:v1, not {given[:200]!r}")
        return reference
    try:
        found = parse(own) if own else None
    except BadImage:
        return None
    return found if isinstance(found, RegistryReference) and not found.digest else None
