from pathlib import Path

import anyio
import pytest

from hawker.api.contract.cluster import AdmitRequest
from hawker.auth.invitation import JoinAttempt, from_text, join_secret
from hawker.clock import ManualClock
from hawker.errors import Forbidden, HawkerError, NotFound, Unauthorized, Unprocessable
from hawker.fleet.joining import KEPT_S, MOST_INVITES, Invites
from hawker.ids import NodeId
from hawker.log import Secret
from hawker.record.node import INVITES, InviteRecord
from hawker.store.contract import Store
from hawker.store.memory_store import MemoryStore
from hawker.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio

ROOT, ME = Secret("hwk_root"), NodeId("0000000a")


def desk(store: Store | None = None, clock: ManualClock | None = None, root: Secret = ROOT) -> Invites:
    return Invites(store or MemoryStore(), clock or ManualClock(), root, ME)


def host(token: str, number: int = 1) -> AdmitRequest:
    invitation = from_text(token)
    attempt = JoinAttempt(invitation.id, invitation.secret, bytes([number]) * 32)
    return AdmitRequest(invite=attempt.invite, key=attempt.public, proof=attempt.proof)


async def test_an_invitation_is_spent_by_as_many_hosts_as_it_says() -> None:
    invites = desk()
    made, token = await invites.make("c1", expires_s=3600, uses=2, by="ann")
    for number in (1, 2, 1, 2):
        assert await invites.admit(host(token, number), f"10.0.0.{number}") == join_secret(ROOT, made.id)
    with pytest.raises(Forbidden, match="was used"):
        await invites.admit(host(token, 3), "10.0.0.3")
    known = invites.list()[0]
    assert [each.source for each in known.joined] == ["10.0.0.1", "10.0.0.2"] and known.by == "ann"
    assert invites.state_of(known) == "used"


async def test_of_hosts_that_come_at_once_one_is_let_in() -> None:
    invites, came = desk(), []
    _, token = await invites.make("c1", expires_s=3600, uses=1, by="ann")

    async def comes(number: int) -> None:
        try:
            await invites.admit(host(token, number), "")
        except Forbidden:
            return
        came.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(1, 9):
            tasks.start_soon(comes, number)
    assert len(came) == 1


async def test_a_spent_invitation_is_spent_for_the_next_daemon(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store")
    _, token = await desk(store).make("c1", expires_s=3600, uses=1, by="ann")
    await desk(store).admit(host(token), "")
    await store.close()
    store = SqliteStore(tmp_path / "store")
    with pytest.raises(Forbidden, match="was used"):
        await desk(store).admit(host(token, 2), "")
    await desk(store).admit(host(token), "")
    await store.close()


async def test_an_invitation_ends_by_its_time_and_by_revocation() -> None:
    clock = ManualClock()
    invites = desk(clock=clock)
    made, token = await invites.make("c1", expires_s=60, uses=1, by="ann")
    assert invites.state_of(made) == "open"
    await clock.sleep(60)
    with pytest.raises(Forbidden, match="has expired"):
        await invites.admit(host(token), "")
    assert invites.state_of(made) == "expired"
    made, token = await invites.make("c1", expires_s=60, uses=1, by="ann")
    assert invites.state_of(await invites.revoke(made.id)) == "revoked"
    with pytest.raises(Forbidden, match="was revoked"):
        await invites.admit(host(token), "")
    with pytest.raises(NotFound):
        await invites.revoke("none")


@pytest.mark.parametrize(("root", "error"), [(Secret("hwk_other"), Unauthorized), (ROOT, Forbidden)])
async def test_an_invitation_is_good_in_its_own_cluster(root: Secret, error: type[HawkerError]) -> None:
    _, token = await desk().make("c1", expires_s=60, uses=1, by="ann")
    with pytest.raises(error):
        await desk(root=root).admit(host(token), "")


async def test_the_root_token_lets_a_host_join_without_a_record() -> None:
    attempt = JoinAttempt("root", join_secret(ROOT, "root"), bytes(32))
    invites = desk()
    await invites.admit(AdmitRequest(invite="root", key=attempt.public, proof=attempt.proof), "")
    assert invites.list() == ()


@pytest.mark.parametrize(("expires_s", "uses"), [(59, 1), (604_801, 1), (60, 0), (60, 101)])
async def test_an_invitation_has_bounds(expires_s: int, uses: int) -> None:
    with pytest.raises(Unprocessable):
        await desk().make("c1", expires_s=expires_s, uses=uses, by="ann")


async def test_invitations_are_so_many_and_old_ones_go() -> None:
    store, clock = MemoryStore(), ManualClock()
    invites = desk(store, clock)
    for _ in range(MOST_INVITES):
        await invites.make("c1", expires_s=60, uses=1, by="ann")
    with pytest.raises(Unprocessable, match="has 256 invitations"):
        await invites.make("c1", expires_s=60, uses=1, by="ann")
    clock.advance(KEPT_S + 61)
    await invites.make("c1", expires_s=60, uses=1, by="ann")
    assert store.count(INVITES) == 1


async def test_nothing_secret_is_kept_of_an_invitation() -> None:
    store = MemoryStore()
    made, token = await desk(store).make("c1", expires_s=60, uses=1, by="ann")
    kept = store.get(INVITES, made.id)
    assert isinstance(kept, InviteRecord)
    assert from_text(token).secret not in repr(kept).encode() and from_text(token).secret.hex() not in repr(kept)
