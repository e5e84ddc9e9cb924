"""Two ends of a spliced connection: bytes that came early, ends, resets."""

import asyncio
from typing import cast
from unittest.mock import Mock

import anyio
import pytest

from hawker.edge import splice
from hawker.edge.splice import UNSENT_MAX, Side
from hawker.http.untaken import Untaken
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


def side() -> tuple[Side, Mock]:
    made, transport = Side(), Mock(spec=asyncio.Transport)
    transport.get_extra_info.return_value = None
    transport.is_closing.return_value = False
    transport.get_write_buffer_size.return_value = 0
    made.connection_made(transport)
    return made, transport


def test_bytes_before_the_join_are_passed_on_and_have_a_bound() -> None:
    client, ours = side()
    client.data_received(b"x" * UNSENT_MAX)
    ours.pause_reading.assert_called_once()
    machine, theirs = side()
    client.join(machine)
    theirs.write.assert_called_once_with(b"x" * UNSENT_MAX)
    ours.resume_reading.assert_called()


def test_each_end_is_passed_on_and_both_ends_close() -> None:
    (client, ours), (machine, theirs) = side(), side()
    client.join(machine)
    assert client.eof_received()
    theirs.write_eof.assert_called_once()
    ours.close.assert_not_called()
    machine.data_received(b"answer")
    ours.write.assert_called_once_with(b"answer")
    machine.eof_received()
    ours.close.assert_called_once()
    theirs.close.assert_called_once()


def test_a_reset_of_one_end_is_a_reset_of_the_other() -> None:
    (client, _), (machine, theirs) = side(), side()
    client.join(machine)
    client.connection_lost(ConnectionResetError())
    theirs.abort.assert_called_once()


def test_a_slow_end_stops_the_reading_of_the_other() -> None:
    (client, ours), (machine, _) = side(), side()
    client.join(machine)
    machine.pause_writing()
    ours.pause_reading.assert_called_once()
    machine.resume_writing()
    assert cast(Mock, ours.resume_reading).call_count == 2


def test_an_end_whose_peer_has_yet_to_read_is_joined_with_nobody_else() -> None:
    machine, theirs = side()
    assert machine.reusable
    theirs.get_write_buffer_size.return_value = 1
    assert not machine.reusable


async def test_an_upgraded_client_that_is_gone_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gone is one of whose kernel nothing is heard, which TCP itself believes after a quarter of an hour."""
    gone: list[object] = []
    monkeypatch.setattr(splice, "_LOOK_S", 0.01)
    monkeypatch.setattr(Untaken, "is_gone", lambda untaken, transport, now: transport in gone)
    (_, ours), (_, theirs) = side(), side()
    ours.abort.side_effect = lambda: ours.set_protocol.call_args.args[0].connection_lost(None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(splice.pass_both_ways, (ours, b""), (theirs, b""), print, print)
        await eventually(lambda: ours.set_protocol.called)
        ours.abort.assert_not_called()
        gone.append(ours)
    ours.abort.assert_called_once()
    theirs.close.assert_called()


def test_an_end_that_came_before_the_join_is_passed_on() -> None:
    (client, _), (machine, theirs) = side(), side()
    client.eof_received()
    client.join(machine)
    theirs.write_eof.assert_called_once()
