import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from hawker.api.grant import Grant, share_key
from hawker.auth.caveat import Actions, Apps, Caveat, Expires, Holder, Orgs, Sources
from hawker.auth.macaroon import Macaroon, key_of, mint, narrow, to_text
from hawker.auth.tokens import Revocations, Tokens, load_or_create_token
from hawker.clock import ManualClock, SystemClock
from hawker.errors import CannotStart, Forbidden, Unauthorized
from hawker.log import Secret
from hawker.permission import Action, Attempt
from hawker.store.memory_store import MemoryStore

pytestmark = pytest.mark.anyio


async def test_a_revoked_id_counts_wherever_it_stands_in_a_chain() -> None:
    revocations = Revocations(MemoryStore(), ManualClock())
    await revocations.add("b", by="ann", note="lost")
    assert revocations(["a", "b", "c"]) and not revocations(["a", "c"]) and not revocations([])


async def test_the_first_revocation_stands() -> None:
    clock = ManualClock()
    revocations = Revocations(MemoryStore(), clock)
    first = await revocations.add("b", by="ann", note="lost")
    clock.advance(10)
    assert await revocations.add("b", by="eve") == first
    assert list(revocations.list()) == [first]


async def test_a_revocation_outlives_the_daemon() -> None:
    store = MemoryStore()
    await Revocations(store, ManualClock()).add("b", by="ann")
    assert Revocations(store.crash(0), ManualClock())(["b"])


def test_first_boot_writes_a_token_that_only_its_owner_can_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = load_or_create_token(path, SystemClock())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().strip() == token.reveal() and token.reveal().startswith("hwk_")


def test_a_later_boot_reads_the_same_token(tmp_path: Path) -> None:
    first = load_or_create_token(tmp_path / "token", SystemClock())
    assert load_or_create_token(tmp_path / "token", SystemClock()).reveal() == first.reveal()


def test_an_empty_token_file_is_refused_rather_than_accepted(tmp_path: Path) -> None:
    (tmp_path / "token").touch()
    with pytest.raises(CannotStart, match="is empty"):
        load_or_create_token(tmp_path / "token", SystemClock())


NOW = 1_700_000_000.0
ROOT = "hwk_1"
APP_READER = (Apps(("a",)), Actions("r"))


def tokens(*revoked: str) -> Tokens:
    orgs = {"a": "acme", "b": "other"}
    return Tokens(Secret(ROOT), ManualClock(NOW), lambda ids: bool({*ids} & {*revoked}), orgs.get)


def made(*caveats: Caveat, root: str = ROOT, nonce: bytes = b"n" * 16) -> Macaroon:
    return narrow(mint(key_of(root), nonce, int(NOW)), *caveats)


async def granted(*offered: Macaroon, source: str = "10.0.0.1") -> Grant:
    return await tokens()(f"Bearer {','.join(map(to_text, offered))}", source)


@pytest.mark.parametrize(
    "header", ["Bearer hwk_1", "FlyV1 hwk_1", "Bearer other,hwk_1", "FlyV1 other, hwk_1", "bearer hwk_1"]
)
async def test_the_root_token_is_accepted_in_every_form_that_clients_send(header: str) -> None:
    grant = await tokens()(header, "")
    assert grant.name == "root" and grant.permits(Attempt(Action.CONTROL))


@pytest.mark.parametrize("header", [None, "", "Bearer ", "Bearer hwk_2", "hwk_1", "Basic hwk_1", "Bearer hwk_1x"])
async def test_anything_else_is_unauthorized(header: str | None) -> None:
    with pytest.raises(Unauthorized, match="no valid token"):
        await tokens()(header, "")


async def test_a_token_made_from_the_root_token_allows_what_it_says() -> None:
    grant = await granted(made(*APP_READER, Holder("ann")))
    assert grant.name == "ann"
    grant.check(Attempt(Action.READ, app="a", machine="m"))
    for refused in (Attempt(Action.WRITE, app="a"), Attempt(Action.READ, app="b"), Attempt(Action.READ)):
        assert not grant.permits(refused)
        with pytest.raises(Forbidden, match="this token does not allow"):
            grant.check(refused)


async def test_the_refusal_names_what_stands_in_the_way() -> None:
    grant = await granted(made(*APP_READER))
    with pytest.raises(Forbidden, match=r"does not allow w \(write\) on machine m; it is limited to: actions r"):
        grant.check(Attempt(Action.WRITE, app="a", machine="m"))


async def test_of_several_tokens_one_must_allow_all_of_it() -> None:
    reader, writer = made(Apps(("a",)), Actions("r")), made(Apps(("b",)), Actions("w"))
    grant = await granted(reader, writer)
    assert grant.permits(Attempt(Action.READ, app="a")) and grant.permits(Attempt(Action.WRITE, app="b"))
    assert not grant.permits(Attempt(Action.WRITE, app="a"))


async def test_an_app_is_known_by_its_organization() -> None:
    grant = await granted(made(Orgs(("acme",))))
    assert grant.permits(Attempt(Action.READ, app="a"))
    assert not grant.permits(Attempt(Action.READ, app="b"))
    assert not grant.permits(Attempt(Action.READ, app="not there"))


async def test_the_address_of_the_caller_counts() -> None:
    token = made(Sources(("10.0.0.0/8",)))
    assert (await granted(token)).permits(Attempt(Action.READ))
    assert not (await granted(token, source="192.0.2.1")).permits(Attempt(Action.READ))


@pytest.mark.parametrize(
    "name", ["", " ", "root", "Root", " node", "broker", "deploy", "spares", "token 0123", "node 1"]
)
async def test_a_name_of_hawkers_own_is_no_name_of_a_token(name: str) -> None:
    token = made(*APP_READER, Holder(name), Holder("eve"))
    assert (await granted(token)).name == f"token {token.id}"


async def test_a_share_is_that_of_the_token_that_was_given_whatever_its_holder_makes_of_it() -> None:
    given, others = made(*APP_READER, Holder("ann")), made(*APP_READER, Holder("bob"), nonce=b"m" * 16)
    made_up = [narrow(made(*APP_READER), Holder(name)) for name in ("ann", "bob", "eve")]
    shares = {share_key(await granted(token)) for token in (given, *made_up, narrow(given, Actions("r")))}
    assert shares == {f"token {made().id}"} and share_key(await granted(others)) not in shares


async def test_a_grant_tells_the_first_id_of_the_chain_and_the_tokens_that_were_shown() -> None:
    one, two = made(*APP_READER), made(Apps(("b",)), nonce=b"m" * 16)
    assert (await granted(made(root="hwk_2"), one, two)).token_ids == (made().id, one.id, two.id)
    assert (await tokens()(f"Bearer {ROOT}", "")).token_ids == ()


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (made(root="hwk_2"), "made with another root token"),
        (replace(made(Apps(("a",))), tag=b"x" * 32), "was changed"),
        (replace(made(Apps(("a",))), raw_caveats=()), "was changed"),
        (made(Expires(int(NOW))), "has expired"),
    ],
)
async def test_a_bad_token_is_unauthorized_and_says_why(token: Macaroon, reason: str) -> None:
    with pytest.raises(Unauthorized, match=reason):
        await granted(token)


async def test_a_bad_token_beside_a_good_one_does_no_harm() -> None:
    assert (await granted(made(root="hwk_2"), made())).permits(Attempt(Action.READ))


async def test_revoking_a_token_ends_all_that_were_narrowed_from_it() -> None:
    parent = made(Apps(("a",)))
    child, sibling = narrow(parent, Actions("r")), made(Apps(("b",)), nonce=b"m" * 16)
    check = tokens(parent.id)
    for revoked in (parent, child):
        with pytest.raises(Unauthorized, match="was revoked"):
            await check(f"Bearer {to_text(revoked)}", "")
    await check(f"Bearer {to_text(sibling)}", "")
    await tokens(child.id)(f"Bearer {to_text(parent)}", "")


async def test_a_header_of_a_thousand_tokens_is_not_read_to_its_end() -> None:
    with pytest.raises(Unauthorized):
        await tokens()("Bearer " + ",".join(["hwk_0"] * 1000 + [ROOT]), "")
