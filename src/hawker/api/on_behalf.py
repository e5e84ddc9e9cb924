"""Calls that one call makes in its caller's name: each is judged, counted and audited as if the caller had made it."""

from typing import Any, Unpack

import msgspec

from hawker.api.audit import AuditedCall, Auditor, Unaudited, is_audited, is_grave
from hawker.api.caller import CallOptions
from hawker.api.endpoints import Limiter, Unlimited, guard_of
from hawker.api.handlers import Handlers
from hawker.api.route import B, Call, P, Q, R, Unary
from hawker.errors import HawkerError

_SHOWN = b"show_secrets"


class OnBehalf:
    """`handlers` answer the public routes."""

    def __init__(self, handlers: Handlers, limiter: Limiter | None = None, auditor: Auditor | None = None) -> None:
        self._handlers = handlers
        self._limiter = limiter or Unlimited()
        self._auditor = auditor or Unaudited()

    async def call(
        self, outer: Call[Any, Any, Any], route: Unary[P, Q, B, R], **options: Unpack[CallOptions[P, Q, B]]
    ) -> R:
        """Raises what the route raises, `Forbidden` and `RateLimited` among it."""
        params, query, body = options.get("params"), options.get("query"), options.get("body")
        made = Call(
            params=route.params() if params is None else params,
            query=route.query() if query is None else query,
            body=route.body() if body is None else body,
            grant=outer.grant,
            request_id=outer.request_id,
            nonce=options.get("nonce"),
            idempotency_key=options.get("idempotency_key"),
            deadline_s=outer.deadline_s,
            source=outer.source,
        )
        named: dict[str, str] = {name: str(value) for name, value in msgspec.structs.asdict(made.params).items()}
        guard = guard_of(route)
        guard.check(made.grant, named)
        guard.spend(self._limiter, named, made.grant)
        audited = _audited(route, made, named)
        if audited is None:
            return await self._answer(route, made)
        if audited.grave:
            await self._auditor.begins(audited)
        status = 500
        try:
            answer = await self._answer(route, made)
            status = route.status
            return answer
        except HawkerError as error:
            status = error.status
            raise
        finally:
            await self._auditor.ends(audited, status)

    async def _answer(self, route: Unary[P, Q, B, R], made: Call[P, Q, B]) -> R:
        answer: R = await self._handlers.of(route)(made)
        return answer


def _audited(route: Unary[Any, Any, Any, Any], made: Call[Any, Any, Any], named: dict[str, str]) -> AuditedCall | None:
    query = _SHOWN if getattr(made.query, "show_secrets", False) else b""
    if not is_audited(route, query):
        return None
    return AuditedCall(
        route=route,
        grant=made.grant,
        source=made.source,
        node="",
        params=named,
        request_id=made.request_id,
        grave=is_grave(route, query),
    )
