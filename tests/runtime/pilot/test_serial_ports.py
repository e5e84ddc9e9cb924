"""Serial ports as a client has them: one each, none mixed up with another's, all given back."""

import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.clock import ManualClock
from hawker.errors import Unavailable
from hawker.runtime.pilot import frames, requests
from hawker.runtime.pilot.connection import Connection
from hawker.runtime.pilot.frames import FrameKind, FrameParser
from hawker.runtime.pilot.journal_disk import JOURNAL_BYTES
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.serial_ports import (
    END,
    KEPT,
    NONCE_BYTES,
    PORTS,
    SerialPortsChannel,
    Unescape,
    begin,
    escape,
    nonce_of,
)
from hawker.runtime.proc import named
from tests.runtime.pilot.liar import HELLO, port_pilot
from tests.runtime.pilot.records import output_record
from tests.runtime.plain import spec
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
SPEC = spec("unused")


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[RunDir]:
    deep = tmp_path / ("d" * 120)  # longer than a socket's address
    deep.mkdir()
    with anyio.fail_after(120):
        yield RunDir(deep)


@pytest.fixture
def channel() -> SerialPortsChannel:
    return SerialPortsChannel(ManualClock())


async def test_the_inherited_descriptors_are_the_locked_ledger_and_then_the_ports(
    channel: SerialPortsChannel, run: RunDir
) -> None:
    assert not run.alive()
    with channel.files(run, SPEC) as (ledger, *ports):
        assert os.path.samestat(os.fstat(ledger), run.journal.stat()) and run.alive()
        assert len(ports) == PORTS
        for port in ports:
            with socket.socket(fileno=os.dup(port)) as listener:
                assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
    assert not run.alive()


async def test_an_answer_on_its_way_to_somebody_else_is_passed_over(channel: SerialPortsChannel, run: RunDir) -> None:
    stale = b"\xff" * 50 + begin(bytes(NONCE_BYTES)) + escape(b"\xfe a frame for another client") + b"\xfe"
    with channel.files(run, SPEC) as fds, port_pilot(fds[1], escape(HELLO), before=stale) as heard:
        async with channel.connect(run) as pilot:
            assert (await pilot.hello()).instance_id == "instance"
    assert heard[0].endswith(END)


async def test_a_run_spec_waits_for_a_guest_that_is_not_there_yet(channel: SerialPortsChannel, run: RunDir) -> None:
    encoded = b"\xfe\x00\x01\x02\xfe" * 10
    with channel.files(run, SPEC) as fds:
        pilot = channel.connect(run)
        requests.send_spec(pilot, encoded)
        with port_pilot(fds[1], escape(HELLO)) as heard:
            await pilot.hello()
            pilot.close()
    said = heard[0][2 + NONCE_BYTES :].removesuffix(END).replace(b"\xfe\x00", b"\xfe")
    greeting, part = FrameParser().feed(said)
    assert (greeting.kind, part.kind, part.payload) == (FrameKind.HELLO, FrameKind.SPEC, b"\1" + encoded)


async def test_each_client_has_a_port_to_itself_until_all_are_taken(channel: SerialPortsChannel, run: RunDir) -> None:
    with channel.files(run, SPEC) as (_, *ports):
        clients = [channel.connect(run) for _ in ports[KEPT:]]
        with pytest.raises(Unavailable, match="all 9 ways into the machine are taken"):
            channel.connect(run)
        clients += [channel.connect(run, kept=True) for _ in range(KEPT)]
        with pytest.raises(Unavailable, match="all 12 ways into the machine are taken"):
            channel.connect(run, kept=True)
        clients[7].close()
        with pytest.raises(Unavailable):  # for what it has said may still be on its way
            channel.connect(run)
        take_up(ports[7])
        clients.append(await connected(channel, run))
        for client in clients:
            client.close()
        for port in ports:
            take_up(port)
        await eventually(lambda: locks(run) == 0)


def take_up(port: int) -> None:
    """As a VMM does: read to the end, and close."""
    with socket.socket(fileno=os.dup(port)) as listener, listener.accept()[0] as stream:
        while stream.recv(1 << 16):
            pass


async def connected(channel: SerialPortsChannel, run: RunDir) -> Connection:
    found: list[Connection] = []

    def is_free() -> bool:
        try:
            found.append(channel.connect(run))
        except Unavailable:
            return False
        return True

    await eventually(is_free)
    return found[0]


def locks(run: RunDir) -> int:
    """How many of the ports' locks are open in this process."""
    links = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{fd}")
    ]
    return sum(link.startswith(str(run.ports)) for link in links)


async def test_a_vmm_that_never_reads_is_left_and_its_port_freed(
    channel: SerialPortsChannel, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawker.runtime.pilot.connection.LINGER_S", 0.01)
    with channel.files(run, SPEC):
        pilot = channel.connect(run)
        pilot.send(bytes(1 << 20))
        pilot.close()
        await eventually(lambda: locks(run) == 0)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"\xfe\x07", id="another escape"),
        pytest.param(END, id="an end"),
        pytest.param(begin(bytes(NONCE_BYTES)), id="another beginning"),
        pytest.param(b"\xff" * 64, id="no frames"),
        pytest.param(escape(frames.encode(FrameKind.READY)), id="another frame first"),
    ],
)
async def test_a_pilot_that_corrupts_its_port_is_unavailable(
    channel: SerialPortsChannel, run: RunDir, answer: bytes
) -> None:
    with channel.files(run, SPEC) as fds, port_pilot(fds[1], answer):
        async with channel.connect(run) as pilot:
            with pytest.raises(Unavailable):
                await pilot.hello()
    await eventually(lambda: locks(run) == 0)


async def test_a_flood_without_the_answer_is_not_kept(channel: SerialPortsChannel, run: RunDir) -> None:
    with channel.files(run, SPEC) as fds, port_pilot(fds[1], before=bytes(8 << 20)):
        async with channel.connect(run) as pilot:
            with anyio.move_on_after(0.2) as waited:
                await pilot.hello()
            assert waited.cancelled_caught


async def test_nobody_is_reached_who_was_never_launched(channel: SerialPortsChannel, run: RunDir) -> None:
    with pytest.raises(Unavailable, match="never launched"):
        channel.connect(run)
    with channel.files(run, SPEC):
        pass
    with pytest.raises(Unavailable, match="refused"):
        channel.connect(run)
    assert locks(run) == 0


async def test_nobody_keeps_what_no_keeper_holds(channel: SerialPortsChannel, run: RunDir) -> None:
    with channel.files(run, SPEC):
        assert os.getpid() not in named("pilot", "keeper")
        assert await channel.pid(run) is None


NONCE = bytes(range(NONCE_BYTES))
ODD = st.binary(max_size=60) | st.lists(st.sampled_from([b"\xfe", b"\x00", b"\x01", b"a"])).map(b"".join)


def heard(stream: bytes, size: int) -> tuple[bytes, str]:
    unescape = Unescape(NONCE)
    said = b"".join(unescape.feed(stream[at : at + size]) for at in range(0, len(stream), size))
    return said, unescape.over


@given(ODD, ODD, st.integers(1, 20))
def test_an_answer_comes_through_and_an_earlier_one_does_not(before: bytes, said: bytes, size: int) -> None:
    assert heard(escape(before) + begin(NONCE) + escape(said), size) == (said, "")


@given(ODD, ODD, st.integers(1, 20))
def test_nothing_is_heard_after_the_end(said: bytes, after: bytes, size: int) -> None:
    told, over = heard(begin(NONCE) + escape(said) + END + after, size)
    assert told == said and "lost" in over


@pytest.mark.parametrize("odd", [begin(NONCE), b"\xfe\x03", b"\xfe\xfe", b"\xfea"])
def test_other_escapes_end_it_as_an_error(odd: bytes) -> None:
    said, over = heard(begin(NONCE) + b"before" + odd + b"after", 3)
    assert said == b"before" and "framing" in over


def test_a_stale_half_of_an_escape_hides_no_beginning() -> None:
    assert heard(b"\xfe" + begin(NONCE) + b"said", 1) == (b"said", "")
    assert heard(begin(NONCE)[:5] + begin(NONCE) + b"said", 4) == (b"said", "")


def test_another_client_s_beginning_is_passed_over() -> None:
    other = bytes(NONCE_BYTES)
    assert heard(begin(other) + b"for another" + begin(NONCE) + b"said", 7) == (b"said", "")


@given(st.binary(max_size=300), st.integers(1, 50))
def test_hostile_bytes_are_held_only_in_part(data: bytes, size: int) -> None:
    unescape = Unescape(NONCE)
    for at in range(0, len(data), size):
        unescape.feed(data[at : at + size])
        assert len(unescape._rest) < len(begin(NONCE))


@given(st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES))
def test_a_nonce_holds_no_escape(random: bytes) -> None:
    assert max(nonce_of(random)) < 0x80


async def test_output_is_never_later_than_the_host_s_own_time(channel: SerialPortsChannel, run: RunDir) -> None:
    with channel.files(run, SPEC):
        with run.journal.open("r+b") as ledger:
            ledger.seek(JOURNAL_BYTES)
            ledger.write(output_record(0, b"said", unix_ns=(1 << 63) - 1))
        assert [(chunk.data, chunk.at) for chunk in channel.output(run)] == [(b"said", ManualClock().now())]
