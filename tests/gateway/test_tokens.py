from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest

from hawker.api.codec import BodyCodec
from hawker.api.contract.app import AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.token import (
    AUTHENTICATE_TOKEN,
    AUTHORIZE_TOKEN,
    CREATE_DEPLOY_TOKEN,
    CURRENT_TOKENS,
    LIST_REVOKED,
    MAX_NOTE,
    REVOKE_TOKEN,
    AuthenticateRequest,
    AuthorizeRequest,
    DeployTokenRequest,
    RevokedToken,
    RevokeTokenRequest,
    TokenAccess,
)
from hawker.api.grant import Everything, Grant
from hawker.api.handlers import Handlers
from hawker.api.route import B, Call, P, Q, R, Unary
from hawker.auth.caveat import Actions, Apps, Caveat, Expires, Holder, Machines, Orgs
from hawker.auth.macaroon import Macaroon, from_text, key_of, mint, narrow, to_text
from hawker.auth.tokens import MAX_SHOWN, Revocations, ShownToken, Tokens
from hawker.clock import ManualClock
from hawker.errors import (
    BadRequest,
    Forbidden,
    HawkerError,
    NotFound,
    QuotaExceeded,
    RateLimited,
    Unauthorized,
    Unprocessable,
)
from hawker.gateway.tokens import MAX_SENT, REVOCATIONS, FleetRevocations, RemoteRevocations, TokenHandlers
from hawker.ids import NodeId
from hawker.log import Secret
from hawker.permission import Action, Attempt
from hawker.record.node import Revocation
from hawker.store.memory_store import MemoryStore

pytestmark = pytest.mark.anyio


class Told:
    """Keeps `ToldRevocations`."""

    def __init__(self) -> None:
        self.found: dict[str, Revocation] = {}

    def is_revoked(self, ids: Sequence[str]) -> bool:
        return not self.found.keys().isdisjoint(ids)

    def revocation(self, token_id: str) -> Revocation | None:
        return self.found.get(token_id)

    def revocations(self) -> Iterable[Revocation]:
        return self.found.values()


async def test_in_a_fleet_what_any_node_ended_counts() -> None:
    clock, told = ManualClock(), Told()
    mine = Revocations(MemoryStore(), clock)
    fleet = FleetRevocations(told, mine)
    assert not fleet(["a", "b"])
    told.found["a"] = Revocation(token_id="a", at=9.0, by="bob")
    await fleet.add("b", by="ann")
    assert fleet(["x", "a"]) and fleet(["b"]) and mine(["b"]) and not fleet(["x"])
    assert (await fleet.add("a", by="ann")).by == "bob" and not mine(["a"])
    assert [each.token_id for each in fleet.list()] == ["a", "b"]


ROOT = "hwk_1"
SHOP = AppParams(app_name="shop")


class Front:
    """The broker's part of a node that has one app, `shop` of `acme`."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        revocations = Revocations(MemoryStore(), self.clock)
        self.tokens = Tokens(Secret(ROOT), self.clock, revocations, {"shop": "acme"}.get)
        self._handlers = Handlers()
        TokenHandlers(self.tokens, revocations, self.clock, {"shop"}.__contains__).bind(self._handlers)

    def made(self, *caveats: Caveat) -> Macaroon:
        return narrow(mint(key_of(ROOT), self.clock.token_bytes(16), int(self.clock.now())), *caveats)

    async def granted(self, token: Macaroon | None) -> Grant:
        return await self.tokens(f"Bearer {ROOT if token is None else to_text(token)}", "")

    async def call(
        self,
        route: Unary[P, Q, B, R],
        *,
        token: Macaroon | None = None,
        grant: Grant | None = None,
        params: P | None = None,
        body: B | None = None,
    ) -> R:
        """With the root token unless told."""
        call = Call(
            params=params or route.params(),
            query=route.query(),
            body=body or route.body(),
            grant=grant or await self.granted(token),
            request_id="01H",
        )
        answer: R = await self._handlers.of(route)(call)
        return answer


@pytest.fixture
def front() -> Front:
    return Front()


async def test_a_token_shows_what_it_is_good_for(front: Front) -> None:
    token = front.made(Orgs(("acme",)), Apps(("shop",)), Machines(("m1",)), Holder("ann"))
    (info,) = (await front.call(CURRENT_TOKENS, token=token)).tokens
    assert (info.token_id, info.org_slug, info.apps, info.user) == (token.id, "acme", ("shop",), "ann")
    assert info.restricted_to_machine == "m1"
    (root,) = (await front.call(CURRENT_TOKENS)).tokens
    assert (root.user, root.apps) == ("root", ())


async def test_authenticating_tells_the_caveats_and_keeps_the_secret(front: Front) -> None:
    token = front.made(Apps(("shop",)), Actions("rw"))
    header = f"FlyV1 {to_text(token)}"
    (verified,) = await front.call(AUTHENTICATE_TOKEN, body=AuthenticateRequest(header=header))
    assert [each.text for each in verified.caveats.caveats] == ["app shop", "actions rw"]
    assert [each.type for each in verified.caveats.caveats] == ["app", "action"]
    assert verified.header == token.id and verified.nonce.rnd == token.header.nonce
    with pytest.raises(Unauthorized):
        await front.call(AUTHENTICATE_TOKEN, body=AuthenticateRequest(header="FlyV1 fm2_x"))


async def test_authorizing_says_which_token_allows_it(front: Front) -> None:
    reader, writer = front.made(Apps(("shop",)), Actions("r")), front.made(Apps(("shop",)), Actions("rw"))
    header = f"Bearer {to_text(reader)},{to_text(writer)}"
    access = TokenAccess(action="rw", app_name="shop")
    answer = await front.call(AUTHORIZE_TOKEN, body=AuthorizeRequest(header=header, access=access))
    assert answer.access == access and answer.verified_token.header == writer.id


@pytest.mark.parametrize(
    ("access", "error"),
    [
        (TokenAccess(action="d", app_name="shop"), Forbidden),
        (TokenAccess(action="r", app_name="other"), Forbidden),
        (TokenAccess(action="r", app_name="shop", command=("sh",)), Forbidden),
        (TokenAccess(action="x"), Unprocessable),
        (TokenAccess(app_name="shop"), Unprocessable),
        (TokenAccess(action="r", volume_id="vol_1"), Unprocessable),
        (TokenAccess(action="r", app_name="shop", source_machine="m1"), Unprocessable),
    ],
)
async def test_a_call_not_allowed_or_not_known_is_refused(
    front: Front, access: TokenAccess, error: type[HawkerError]
) -> None:
    header = f"Bearer {to_text(front.made(Apps(('shop',)), Actions('rw')))}"
    with pytest.raises(error):
        await front.call(AUTHORIZE_TOKEN, body=AuthorizeRequest(header=header, access=access))


async def test_a_deploy_token_is_good_for_its_app_and_its_time(front: Front) -> None:
    made = await front.call(CREATE_DEPLOY_TOKEN, params=SHOP, body=DeployTokenRequest(expiry="1h"))
    token = from_text(made.token)
    grant = await front.granted(token)
    assert grant.permits(Attempt(Action.CREATE, app="shop")) and not grant.permits(Attempt(Action.READ, app="other"))
    assert not grant.permits(Attempt(Action.READ)) and grant.name == "deploy-shop"
    front.clock.advance(3600)
    with pytest.raises(Unauthorized, match="expired"):
        await front.granted(token)


async def test_a_deploy_token_never_allows_more_than_the_token_that_asked(front: Front) -> None:
    asking = front.made(Apps(("shop",)), Actions("rC"), Expires(int(front.clock.now()) + 60))
    made = await front.call(CREATE_DEPLOY_TOKEN, token=asking, params=SHOP)
    grant = await front.granted(from_text(made.token))
    assert grant.permits(Attempt(Action.READ, app="shop")) and not grant.permits(Attempt(Action.WRITE, app="shop"))
    front.clock.advance(61)
    with pytest.raises(Unauthorized):
        await front.granted(from_text(made.token))


async def test_a_deploy_token_needs_an_app_and_a_time_that_makes_sense(front: Front) -> None:
    with pytest.raises(NotFound, match="app not found"):
        await front.call(CREATE_DEPLOY_TOKEN, params=AppParams(app_name="other"))
    for expiry in ("soon", "0s", "-1h"):
        with pytest.raises((BadRequest, Unprocessable), match="expiry"):
            await front.call(CREATE_DEPLOY_TOKEN, params=SHOP, body=DeployTokenRequest(expiry=expiry))


async def test_whoever_holds_a_token_may_end_it(front: Front) -> None:
    token = front.made(Apps(("shop",)), Actions("r"), Holder("ann"))
    child = narrow(token, Machines(("m1",)))
    ended = await front.call(REVOKE_TOKEN, token=token, body=RevokeTokenRequest(token=to_text(token), note="lost"))
    assert (ended.token_id, ended.revoked_by, ended.note) == (token.id, "ann", "lost")
    for each in (token, child):
        with pytest.raises(Unauthorized, match="revoked"):
            await front.granted(each)
    assert (await front.call(LIST_REVOKED)).tokens == (ended,)


async def test_a_holder_who_makes_and_ends_tokens_is_counted_and_stops_at_a_bound(front: Front) -> None:
    token = front.made(Apps(("shop",)), Actions("r"))

    async def end(number: int) -> None:
        made = narrow(token, Holder(f"{number}"))
        await front.call(REVOKE_TOKEN, token=token, body=RevokeTokenRequest(token=to_text(made)))

    for number in range(MAX_SHOWN):
        if number == REVOCATIONS.burst:
            with pytest.raises(RateLimited):
                await end(number)
        front.clock.advance(0 if number < REVOCATIONS.burst else 1)
        await end(number)
    front.clock.advance(10)
    with pytest.raises(QuotaExceeded, match="revoke that one"):
        await end(MAX_SHOWN)
    other = front.made(Apps(("shop",)))
    await front.call(REVOKE_TOKEN, token=other, body=RevokeTokenRequest(token=to_text(other)))
    assert len((await front.call(LIST_REVOKED)).tokens) == MAX_SHOWN + 1


async def end_parts(front: Front, token: Macaroon, names: Iterable[int], *caveats: Caveat) -> None:
    """Its holder makes a token for each name, and shows it."""
    for name in names:
        front.clock.advance(1)
        part = narrow(token, Holder(f"{name}"), *caveats)
        await front.call(REVOKE_TOKEN, token=token, body=RevokeTokenRequest(token=to_text(part)))


async def test_operator_ends_a_shown_token_beyond_the_bound(front: Front) -> None:
    token, operator = front.made(Apps(("shop",))), front.made(Holder("ann"))
    await end_parts(front, token, range(MAX_SHOWN))
    for caller in (None, operator):
        left = narrow(token, Holder(f"left by {caller}"))
        await front.call(REVOKE_TOKEN, token=caller, body=RevokeTokenRequest(token=to_text(left)))
        with pytest.raises(Unauthorized, match="revoked"):
            await front.granted(left)
    with pytest.raises(QuotaExceeded):
        await end_parts(front, token, [MAX_SHOWN])


async def test_a_node_that_calls_for_a_holder_is_counted(front: Front) -> None:
    token = front.made(Apps(("shop",)))
    await end_parts(front, token, range(MAX_SHOWN))
    node = Everything("ann", root=False, token_ids=(token.id, token.id))
    body = RevokeTokenRequest(token=to_text(narrow(token, Holder("left"))))
    with pytest.raises(QuotaExceeded):
        await front.call(REVOKE_TOKEN, grant=node, body=body)


async def test_the_ends_of_tokens_that_expired_a_day_ago_make_room_for_others(front: Front) -> None:
    token, hour = front.made(Apps(("shop",))), int(front.clock.now()) + 3600
    await end_parts(front, token, range(MAX_SHOWN - 1), Expires(hour))
    await end_parts(front, token, [MAX_SHOWN])
    front.clock.advance(3600 + 80_000)
    with pytest.raises(QuotaExceeded):
        await end_parts(front, token, [MAX_SHOWN + 1])
    front.clock.advance(7_000)
    await end_parts(front, token, [MAX_SHOWN + 1])
    assert len((await front.call(LIST_REVOKED)).tokens) == 2
    await end_parts(front, token, range(1000, 1000 + MAX_SHOWN - 2))
    with pytest.raises(QuotaExceeded):
        await end_parts(front, token, [0])


async def test_the_end_of_the_first_token_stands_for_those_of_all_that_were_made_of_it(front: Front) -> None:
    token = front.made()
    held = narrow(token, Apps(("shop",)))
    parts = [narrow(held, Holder(f"{number}")) for number in range(3)]
    for part in parts:
        await front.call(REVOKE_TOKEN, token=held, body=RevokeTokenRequest(token=to_text(part)))
    ended = await front.call(REVOKE_TOKEN, body=RevokeTokenRequest(token_id=token.id))
    assert (await front.call(LIST_REVOKED)).tokens == (ended,)
    for each in (token, *parts):
        with pytest.raises(Unauthorized, match="revoked"):
            await front.granted(each)


def test_a_note_is_short() -> None:
    codec = BodyCodec(RevokeTokenRequest)
    assert codec.decode(msgspec.json.encode({"note": "n" * MAX_NOTE})).note == "n" * MAX_NOTE
    with pytest.raises(HawkerError, match="note"):
        codec.decode(msgspec.json.encode({"note": "n" * (MAX_NOTE + 1)}))


async def test_a_broker_of_its_own_shows_its_node_what_it_was_shown_and_remembers_the_last() -> None:
    asked: list[RevokeTokenRequest] = []
    clock = ManualClock()

    class Node:
        def caller(self, node_id: NodeId, *, behalf: str) -> Any:
            return self

        async def call(self, route: object, *, body: RevokeTokenRequest) -> RevokedToken:
            asked.append(body)
            return RevokedToken(token_id="", revoked_at=instant(clock.now()), revoked_by="ann")

    remote = RemoteRevocations(Node(), NodeId("0000000a"))
    await remote.add("b", by="ann", shown=ShownToken(text=Secret("hwk_b"), first="a"))
    assert asked == [RevokeTokenRequest(token="hwk_b")]
    for number in range(MAX_SENT):
        await remote.add(f"{number}", by="ann")
    assert len(tuple(remote.list())) == MAX_SENT and not remote(["b"]) and remote(["0"])


async def test_by_its_id_only_who_controls_the_node_ends_a_token(front: Front) -> None:
    token, other = front.made(Apps(("shop",))), front.made(Apps(("shop",)))
    with pytest.raises(Forbidden):
        await front.call(REVOKE_TOKEN, token=other, body=RevokeTokenRequest(token_id=token.id))
    await front.call(REVOKE_TOKEN, body=RevokeTokenRequest(token_id=token.id))
    with pytest.raises(Unauthorized, match="revoked"):
        await front.granted(token)


@pytest.mark.parametrize(
    "body",
    [
        RevokeTokenRequest(),
        RevokeTokenRequest(token="a", token_id="b"),
        RevokeTokenRequest(token_id="not an id"),
        RevokeTokenRequest(token=ROOT),
    ],
)
async def test_a_token_that_cannot_be_ended_is_refused(front: Front, body: RevokeTokenRequest) -> None:
    with pytest.raises(Unprocessable):
        await front.call(REVOKE_TOKEN, body=body)
