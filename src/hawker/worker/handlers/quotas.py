"""Answers about quotas."""

import msgspec

from hawker.api.contract.body import instant
from hawker.api.contract.quota import (
    CLEAR_QUOTA,
    LIST_QUOTAS,
    PUT_QUOTA,
    Quota,
    QuotaAmounts,
    QuotaLimits,
    QuotaList,
    QuotaParams,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.errors import NotFound
from hawker.quota.quotas import Quotas
from hawker.record.org import Amount, QuotaRecord, QuotaRule
from hawker.store.contract import Store

_KINDS = ("org", "app")


class QuotaHandlers:
    def __init__(self, store: Store, quotas: Quotas) -> None:
        self._store = store
        self._quotas = quotas

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_QUOTAS, self.list)
        handlers.on(PUT_QUOTA, self.put)
        handlers.on(CLEAR_QUOTA, self.clear)

    async def list(self, call: Call[NoParams, NoQuery, None]) -> QuotaList:
        return QuotaList(quotas=tuple(map(self._shown, self._quotas.all(self._store).values())))

    async def put(self, call: Call[QuotaParams, NoQuery, QuotaLimits]) -> Quota:
        limits = QuotaRule(**msgspec.structs.asdict(call.body))
        return self._shown(await self._quotas.put(_subject(call.params), limits, call.caller))

    async def clear(self, call: Call[QuotaParams, NoQuery, None]) -> Quota:
        subject = _subject(call.params)
        if subject not in self._quotas.all(self._store):
            raise NotFound(f"there is no quota of {subject!r:.100}: see `hawker quotas show`")
        return self._shown(await self._quotas.put(subject, QuotaRule(), call.caller))

    def _shown(self, record: QuotaRecord) -> Quota:
        return Quota(
            subject=record.subject,
            limits=QuotaLimits(**msgspec.structs.asdict(record.limits)),
            used_here=_amounts(self._quotas.used(self._store, record.subject)),
            used_elsewhere=_amounts(self._quotas.elsewhere(record.subject)),
            set_at=instant(record.at),
            set_by=record.by,
        )


def _subject(params: QuotaParams) -> str:
    if params.kind not in _KINDS or (params.kind == "app" and params.name == "*"):
        raise NotFound(f"a quota is of an org or an app, not of {params.kind!r:.20}/{params.name!r:.80}")
    return f"{params.kind}/{params.name}"


def _amounts(amount: Amount) -> QuotaAmounts:
    return QuotaAmounts(**msgspec.structs.asdict(amount))
