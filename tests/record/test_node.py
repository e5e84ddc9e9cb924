import pytest

from hawker.node import Resources
from hawker.record.node import InviteRecord, JoinedHost, hold, used
from hawker.store.memory_store import MemoryStore

INVITE = InviteRecord(id="a", created_at=0.0, expires_at=60.0, uses=1, by="ann")


def test_an_invite_is_open_until_its_time_its_uses_or_its_end() -> None:
    assert INVITE.open_at(59.9) and not INVITE.open_at(60.0)
    used = InviteRecord(id="a", created_at=0, expires_at=60, uses=1, by="ann", joined=(JoinedHost(key="k", at=1.0),))
    ended = InviteRecord(id="a", created_at=0, expires_at=60, uses=1, by="ann", revoked_at=1.0)
    assert not used.open_at(2.0) and not ended.open_at(2.0)


pytestmark = pytest.mark.anyio


async def test_used_memory_is_the_held_and_not_given_back() -> None:
    store, two, five = MemoryStore(), Resources(disk_mib=2), Resources(disk_mib=5, memory_mib=1)
    assert used(store) == Resources()
    await store.write(lambda tx: hold(tx, Resources(), two))
    await store.write(lambda tx: hold(tx, Resources(), five))
    assert used(store) == Resources(disk_mib=7, memory_mib=1)
    await store.write(lambda tx: hold(tx, two, Resources()))
    await store.write(lambda tx: hold(tx, five, five))
    assert used(store) == five
