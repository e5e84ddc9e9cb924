"""What every driver with real processes promises about clients at a machine's own process."""

import anyio
import anyio.lowlevel
import pytest

from hawker.errors import NotServed, WrongState
from hawker.runtime.driver import Attachment
from tests.contract.drivers import Rig
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


async def read_until(session: Attachment, wanted: bytes) -> bytes:
    seen = b""
    async for _, data in session.output():
        seen += data
        if wanted in seen:
            return seen
    raise AssertionError(f"it ended without {wanted!r}: {seen!r}")


async def attach(rig: Rig, command: str, *, tty: bool = False) -> Attachment:
    spec = await rig.started(command, tty=tty, stdin=True)
    return await rig.driver.attach(spec.machine_id, 0, rows=30 if tty else 0, cols=100 if tty else 0)


async def test_a_process_reads_what_a_client_types_and_ends_with_it(real: Rig) -> None:
    session = await attach(real, "cat; exit 7")
    assert await session.position() == 0
    await session.send(b"to and fro\n")
    await session.send_eof()
    assert [data async for _, data in session.output()] == [b"to and fro\n"]
    assert (await session.wait()).exit_code == 7


async def test_earlier_output_of_a_process_is_there_up_to_the_position(real: Rig) -> None:
    spec = await real.started("echo before; read line; echo after", stdin=True)
    await eventually(lambda: bool(real.driver.output(spec.machine_id)))
    session = await real.driver.attach(spec.machine_id, 0)
    end = await session.position()
    earlier = [chunk.data for chunk in real.driver.output(spec.machine_id) if chunk.position < end]
    await session.send(b"go\n")
    assert (b"".join(earlier), await read_until(session, b"after")) == (b"before\n", b"after\n")
    await session.wait()
    assert b"".join(chunk.data for chunk in real.driver.output(spec.machine_id)) == b"before\nafter\n"


async def test_a_process_with_a_terminal_has_the_client_s_window(real: Rig) -> None:
    session = await attach(real, "read line; stty size", tty=True)
    await session.position()
    await session.send(b"go\n")
    assert b"30 100" in await read_until(session, b"30 100")


async def test_the_end_of_input_ends_a_terminal_s_open_line_too(real: Rig) -> None:
    session = await attach(real, "cat", tty=True)
    await session.position()
    await session.send(b"half a line")
    await session.send_eof()
    assert (await session.wait()).exit_code == 0


async def test_a_client_that_leaves_ends_nothing_and_another_comes_back(real: Rig) -> None:
    spec = await real.started("cat", stdin=True)
    first = await real.driver.attach(spec.machine_id, 0)
    await first.position()
    refused = await real.driver.attach(spec.machine_id, 0)
    with pytest.raises(WrongState, match="another client is attached"):
        await refused.position()
    await first.close()

    async def is_free() -> bool:
        session = await real.driver.attach(spec.machine_id, 0)
        try:
            await session.position()
        except WrongState:
            return False
        await session.send(b"again\n")
        return await read_until(session, b"again") == b"again\n"

    await eventually(is_free)


async def test_a_client_that_reads_slowly_loses_nothing(real: Rig) -> None:
    session = await attach(real, "read go; head -c 3000000 /dev/zero")
    await session.position()
    await session.send(b"go\n")
    size = 0
    async for _, data in session.output():
        size += len(data)
        await anyio.lowlevel.checkpoint()
    assert size == 3_000_000


async def test_a_process_without_open_input_takes_no_client(real: Rig) -> None:
    spec = await real.started(("sleep", "1000"))
    session = await real.driver.attach(spec.machine_id, 0)
    with pytest.raises(WrongState, match="its input is not open"):
        await session.position()


async def test_a_driver_that_cannot_connect_input_says_so(rig: Rig) -> None:
    if rig.real:
        return
    spec = await rig.started(("sleep", "1000"))
    with pytest.raises(NotServed):
        await rig.driver.attach(spec.machine_id, 0)
