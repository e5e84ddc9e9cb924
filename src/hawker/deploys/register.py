"""One voter's side of a deploy's register: three nodes keep what a deploy's coordinator writes, and let one node at a
time coordinate it. A majority of them decides, as in Paxos: a term is granted once, and a write of an earlier term than
the greatest that was granted is refused.

A term lasts for some seconds by the voter's own monotonic clock, and no higher one is granted to another node
meanwhile; not even after the voter's own restart, since it then waits that long first.
"""

from msgspec.structs import replace

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
from hawker.api.handlers import answers
from hawker.api.route import Call, NoQuery
from hawker.clock import Clock
from hawker.errors import Unprocessable
from hawker.ids import AppName, NodeId
from hawker.record.deploy import DEPLOY_REGISTERS, RegisterRecord, deploy_key
from hawker.store.contract import Store, Tx

TERM_S = 10.0
"""The seconds for which a grant or a renewal lasts at a voter."""


class RegisterHandlers:
    """A voter, for as long as one daemon lives."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._begun = clock.monotonic()
        self._until: dict[str, float] = {}

    @answers(READ_REGISTER)
    async def read(self, call: Call[RegisterParams, NoQuery, None]) -> RegisterAnswer:
        found = self._store.get(DEPLOY_REGISTERS, _key(call.params))
        return RegisterAnswer() if found is None else answer_of(found)

    @answers(GRANT_TERM)
    async def grant(self, call: Call[RegisterParams, NoQuery, GrantTermRequest]) -> RegisterAnswer:
        key, body = _key(call.params), call.body

        def apply(tx: Tx) -> RegisterRecord:
            record = _found(tx, call.params, body)
            after = granted(record, body, runs=self._runs(key))
            if after is not record:
                tx.put(DEPLOY_REGISTERS, key, after)
            return after

        after = await self._store.write(apply)
        if (after.granted, after.holder) == (body.term, body.node):
            self._until[key] = self._clock.monotonic() + TERM_S
        return answer_of(after)

    @answers(WRITE_REGISTER)
    async def write(self, call: Call[RegisterParams, NoQuery, WriteRegisterRequest]) -> RegisterAnswer:
        key, body = _key(call.params), call.body
        if body.state is not None and len(body.state) > MOST_STATE_BYTES:
            raise Unprocessable(f"state: it is longer than {MOST_STATE_BYTES >> 10} KiB")
        there = self._store.get(DEPLOY_REGISTERS, key)
        if there is None or body.state is not None or there.granted != body.term:
            there = await self._store.write(lambda tx: self._write(tx, call.params, body))
        if (there.granted, there.holder) == (body.term, body.node):
            self._until[key] = self._clock.monotonic() + TERM_S
        return replace(answer_of(there), state=b"")

    def _write(self, tx: Tx, params: RegisterParams, body: WriteRegisterRequest) -> RegisterRecord:
        record = _found(tx, params, body)
        after = written(record, body, self._clock.now())
        if after is not record:
            tx.put(DEPLOY_REGISTERS, _key(params), after)
        return after

    def _runs(self, key: str) -> bool:
        """Whether the term that was granted last may still run."""
        return self._clock.monotonic() < self._until.get(key, self._begun + TERM_S)


def granted(record: RegisterRecord, body: GrantTermRequest, *, runs: bool) -> RegisterRecord:
    """The record after a term was granted; the same record where that is refused: for a term that is no new one, and
    while another node's runs. Who else is a voter changes with a term that an operator took."""
    if body.term <= record.granted or (runs and record.holder not in ("", body.node)):
        return record
    return _of_term(record, body)


def written(record: RegisterRecord, body: WriteRegisterRequest, now: float) -> RegisterRecord:
    """The record after a write; the same record where that is refused, or says nothing new. A majority granted the
    term, whether this voter heard of that or not."""
    if body.term < record.granted:
        return record
    if body.term > record.granted:
        record = _of_term(record, body)
    if body.state is None or (body.term, body.number) <= (record.term, record.number):
        return record
    return replace(record, term=body.term, number=body.number, state=body.state, ended=body.ended, at=now)


def _of_term(record: RegisterRecord, body: GrantTermRequest | WriteRegisterRequest) -> RegisterRecord:
    voters = tuple(map(NodeId, body.voters))
    return replace(record, granted=body.term, holder=NodeId(body.node), voters=voters)


def answer_of(record: RegisterRecord) -> RegisterAnswer:
    return RegisterAnswer(
        granted=record.granted,
        holder=record.holder,
        term=record.term,
        number=record.number,
        state=record.state,
        ended=record.ended,
    )


def _found(tx: Tx, params: RegisterParams, body: GrantTermRequest | WriteRegisterRequest) -> RegisterRecord:
    there = tx.get(DEPLOY_REGISTERS, _key(params))
    if there is not None:
        return there
    return RegisterRecord(app=AppName(body.app), version=params.number, voters=tuple(map(NodeId, body.voters)))


def _key(params: RegisterParams) -> str:
    return deploy_key(params.app_id, params.number)
