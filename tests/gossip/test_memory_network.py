"""The network in memory does what it is told: lose, delay, part; streams keep their order through all of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest
from anyio.abc import ByteStream

from hawker.errors import CannotStart, Unavailable
from hawker.gossip.memory_network import MemoryNetwork, MemoryTransport, _accept
from hawker.sim.harness.loop import LoopClock, eventually
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


class Place:
    """One that listens and keeps what comes; a stream gets back what it sent."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.transport = transport
        self.datagrams: list[tuple[str, bytes]] = []

    async def serve(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        await self.transport.serve(
            lambda source, datagram: self.datagrams.append((source, datagram)), self.echo, task_status=task_status
        )

    async def echo(self, stream: ByteStream) -> None:
        async with stream:
            async for data in stream:
                await stream.send(data)


@asynccontextmanager
async def network(**options: float) -> AsyncIterator[tuple[MemoryNetwork, Place, Place, LoopClock]]:
    clock = LoopClock(1)
    made = MemoryNetwork(clock, **options)  # type: ignore[arg-type]
    one, other = Place(made.transport("a:1")), Place(made.transport("b:1"))
    async with anyio.create_task_group() as tasks:
        for service in (made.serve, one.serve, other.serve):
            await tasks.start(service)
        yield made, one, other, clock
        tasks.cancel_scope.cancel()


async def test_a_datagram_takes_its_time() -> None:
    async with network() as (made, one, other, clock):
        made.delay_s = (0.5, 0.5)
        one.transport.send("b:1", b"hello")
        await clock.sleep(0.49)
        assert not other.datagrams
        await clock.sleep(0.02)
        assert other.datagrams == [("a:1", b"hello")]


async def test_some_are_lost_and_some_overtake() -> None:
    async with network(loss=0.3) as (_, one, other, clock):
        for number in range(200):
            one.transport.send("b:1", bytes([number]))
        await clock.sleep(1)
        came = [datagram for _, datagram in other.datagrams]
        assert 100 < len(came) < 180 and came != sorted(came)


async def test_a_cut_has_a_direction_and_an_end() -> None:
    async with network() as (made, one, other, clock):
        made.cut("a:1", "b:1")
        one.transport.send("b:1", b"lost")
        other.transport.send("a:1", b"passes")
        await clock.sleep(1)
        assert not other.datagrams and one.datagrams
        made.heal()
        one.transport.send("b:1", b"passes")
        await clock.sleep(1)
        assert other.datagrams


async def test_a_slow_place_is_slow_in_both_directions() -> None:
    async with network() as (made, one, other, clock):
        made.slow("b:1", 2.0)
        one.transport.send("b:1", b"1")
        other.transport.send("a:1", b"2")
        await clock.sleep(1.9)
        assert not one.datagrams and not other.datagrams
        await clock.sleep(0.2)
        assert one.datagrams and other.datagrams


async def test_to_nobody_is_lost() -> None:
    async with network() as (_, one, _, clock):
        one.transport.send("nobody:1", b"x")
        await clock.sleep(1)
        with pytest.raises(Unavailable, match="nobody listens"):
            await one.transport.dial("nobody:1")


async def test_a_stream_keeps_its_order_through_loss_and_cuts() -> None:
    async with network(loss=0.4) as (made, one, _, clock):
        stream = await one.transport.dial("b:1")
        sent = b"".join(number.to_bytes(2, "big") for number in range(300))

        async def send() -> None:
            for at in range(0, len(sent), 2):
                await stream.send(sent[at : at + 2])
                if at == 100:
                    made.part(["a:1"], ["b:1"])
            await clock.sleep(5)
            made.heal()

        received = b""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            while len(received) < len(sent):
                received += await stream.receive(100)
        assert received == sent
        await stream.aclose()
        with pytest.raises(anyio.ClosedResourceError):
            await stream.send(b"x")


async def test_a_sender_waits_for_a_reader() -> None:
    async with network() as (_, one, other, clock):
        held: list[ByteStream] = []

        async def hold(stream: ByteStream) -> None:
            held.append(stream)
            await anyio.sleep_forever()

        async with anyio.create_task_group() as tasks:
            other.transport._accept = partial(_accept, tasks, hold)
            stream = await one.transport.dial("b:1")
            with anyio.move_on_after(5) as scope:
                for _ in range(10):
                    await stream.send(bytes(1 << 20))
            assert scope.cancelled_caught
            await held[0].receive(1 << 22)
            with anyio.fail_after(5):
                await stream.send(b"fits again")
            tasks.cancel_scope.cancel()
        assert clock.monotonic() > 0


async def test_an_end_is_seen_by_the_other_end() -> None:
    async with network() as (_, one, _, clock):
        stream = await one.transport.dial("b:1")
        await stream.send(b"x")
        await stream.send_eof()
        assert await stream.receive() == b"x"
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
        await clock.sleep(1)
        with pytest.raises(anyio.BrokenResourceError):
            await stream.send(b"to one that closed")


async def test_dialling_through_a_cut_ends_or_waits_for_its_end() -> None:
    async with network() as (made, one, _, clock):
        made.cut("b:1", "a:1")
        with pytest.raises(Unavailable, match="no answer within 3 s"):
            await one.transport.dial("b:1")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.transport.dial, "b:1")
            await clock.sleep(1)
            made.heal()


async def test_an_address_has_one_place_until_it_is_left() -> None:
    clock = LoopClock(1)
    made = MemoryNetwork(clock)
    first, second = Place(made.transport("a:1")), Place(made.transport("a:1"))
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            await tasks.start(first.serve)
            with pytest.raises(CannotStart):
                await second.transport.serve(lambda *_: None, second.echo, task_status=anyio.TASK_STATUS_IGNORED)
            scope.cancel()
        made.unbind(first.transport)
        await tasks.start(second.serve)
        await eventually(clock, lambda: made.endpoint("a:1") is second.transport, 5)
        tasks.cancel_scope.cancel()
