"""What one voter grants and takes."""

import msgspec
import pytest

from hawker.api.contract.deploy import (
    GRANT_TERM,
    MOST_STATE_BYTES,
    READ_REGISTER,
    WRITE_REGISTER,
    GrantTermRequest,
    RegisterAnswer,
    RegisterParams,
    WriteRegisterRequest,
)
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.api.outgoing import RouteCodecs
from hawker.deploys.register import TERM_S, RegisterHandlers, granted, written
from hawker.errors import Unprocessable
from hawker.ids import AppName, NodeId
from hawker.record.deploy import RegisterRecord
from hawker.sim.harness.loop import LoopClock
from hawker.store.memory_store import MemoryStore
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

A, B = NodeId("0000000a"), NodeId("0000000b")
PARAMS = RegisterParams(app_id="id", version="1")
NEW = RegisterRecord(app=AppName("shop"), version=1, voters=(A, B))


def write(term: int, node: NodeId = A, number: int = 1, state: bytes | None = b"s") -> WriteRegisterRequest:
    return WriteRegisterRequest(app="shop", term=term, node=node, voters=(A, B), number=number, state=state)


class Voter:
    """One life of a voter over a store."""

    def __init__(self, store: MemoryStore, clock: LoopClock) -> None:
        handlers = Handlers()
        handlers.add(RegisterHandlers(store, clock))
        self._caller = InProcessCaller(handlers, clock, "peer")

    async def grant(self, term: int, node: NodeId) -> RegisterAnswer:
        return await self._caller.call(GRANT_TERM, params=PARAMS, body=asks(term, node))

    async def write(self, body: WriteRegisterRequest) -> RegisterAnswer:
        return await self._caller.call(WRITE_REGISTER, params=PARAMS, body=body)

    async def read(self) -> RegisterAnswer:
        return await self._caller.call(READ_REGISTER, params=PARAMS)


def asks(term: int, node: NodeId, voters: tuple[str, ...] = (A, B)) -> GrantTermRequest:
    return GrantTermRequest(app="shop", term=term, node=node, voters=voters)


def test_a_term_is_granted_once() -> None:
    first = granted(NEW, asks(1, A), runs=False)
    assert (first.granted, first.holder) == (1, A)
    assert granted(first, asks(1, B), runs=False) is first
    assert granted(first, asks(2, B), runs=True) is first
    assert granted(first, asks(2, A), runs=True).granted == 2
    assert granted(first, asks(2, B), runs=False).holder == B


def test_the_voters_change_with_a_term_and_not_with_one_that_is_refused() -> None:
    first = granted(NEW, asks(1, A), runs=False)
    other = ("0000000a", "0000000c")
    assert granted(first, asks(2, B, other), runs=True).voters == (A, B)
    assert granted(first, asks(2, A, other), runs=True).voters == other


def test_a_write_of_an_earlier_term_is_refused_and_a_later_one_counts() -> None:
    first = written(granted(NEW, asks(3, A), runs=False), write(3), 1.0)
    assert (first.term, first.number, first.state) == (3, 1, b"s")
    assert written(first, write(2, B, 9), 2.0) is first
    assert written(first, write(3, A, 1, b"other"), 2.0) is first
    later = written(first, write(4, B, 0, b"t"), 2.0)
    assert (later.granted, later.holder, later.state) == (4, B, b"t")


async def test_no_other_node_gets_a_term_while_one_runs() -> None:
    clock = LoopClock()
    voter = Voter(MemoryStore(), clock)
    assert (await voter.grant(1, A)).holder == A
    await clock.sleep(TERM_S - 1)
    assert (await voter.grant(2, B)).holder == A
    assert (await voter.write(write(1, state=None))).granted == 1
    await clock.sleep(TERM_S - 1)
    assert (await voter.grant(2, B)).holder == A
    await clock.sleep(2)
    assert (await voter.grant(2, B)).holder == B
    assert (await voter.write(write(1))).granted == 2 and (await voter.read()).state == b""


async def test_a_voter_that_was_restarted_waits_before_it_grants_another_node_a_term() -> None:
    clock, store = LoopClock(), MemoryStore()
    await Voter(store, clock).grant(1, A)
    again = Voter(store, clock)
    assert (await again.grant(2, B)).holder == A
    await clock.sleep(TERM_S)
    assert (await again.grant(2, B)).holder == B


async def test_a_state_has_a_bound() -> None:
    voter = Voter(MemoryStore(), LoopClock())
    with pytest.raises(Unprocessable):
        await voter.write(write(1, state=bytes(MOST_STATE_BYTES + 1)))
    assert await voter.read() == RegisterAnswer()


def test_calls_between_voters_pass_over_http() -> None:
    """Written as a client writes them, and read as a server reads them."""
    grant, keep = GrantTermRequest(app="shop", term=7, node=A, voters=(A, B)), write(7, number=3)
    sent = [
        RouteCodecs(READ_REGISTER).outgoing("", PARAMS, None, None),
        RouteCodecs(GRANT_TERM).outgoing("", PARAMS, None, grant),
        RouteCodecs(WRITE_REGISTER).outgoing("", PARAMS, None, keep),
    ]
    assert all(each.target.startswith("/internal/v1/deploys/id/1/register") for each in sent)
    assert msgspec.json.decode(sent[1].data, type=GrantTermRequest) == grant
    assert msgspec.json.decode(sent[2].data, type=WriteRegisterRequest) == keep
    assert msgspec.convert({"app_id": "id", "version": "1"}, RegisterParams) == PARAMS and PARAMS.number == 1
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"app_id": "id", "version": "x"}, RegisterParams)
