import pytest

from hawker.errors import Fault, NotFound
from hawker.gossip.contract import Fate, Listener, Member, Trouble
from hawker.gossip.keyring import GossipKeyring
from tests.gossip.single_core import KEYRING, node

MEMBER = Member(node=node(2), address="2:1", incarnation=1, fate=Fate.ALIVE)
TROUBLE = Trouble(code="skew", node=node(2), text="late")


def tell_all(listener: Listener) -> None:
    listener.member(MEMBER)
    listener.message(node(2), b"hello")
    listener.forget(node(2), 3)
    listener.keyring(KEYRING)
    listener.trouble(TROUBLE)


def test_everyone_hears_what_is_theirs() -> None:
    heard: list[object] = []

    def keyring(ring: GossipKeyring) -> None:
        heard.append(ring)

    tell_all(
        Listener(
            on_member=heard.append,
            on_message=lambda sender, message: heard.append((sender, message)),
            on_forget=lambda gone, fence: heard.append((gone, fence)),
            on_keyring=keyring,
            on_trouble=heard.append,
        )
    )
    assert heard == [MEMBER, (node(2), b"hello"), (node(2), 3), KEYRING, TROUBLE]


def test_nobody_has_to_listen() -> None:
    tell_all(Listener())


def test_a_listener_that_fails_ends_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("poison")

    tell_all(Listener(on_member=fail, on_message=fail, on_forget=fail, on_keyring=fail, on_trouble=fail))
    assert [record.message for record in caplog.records] == ["listener failed"] * 5


@pytest.mark.anyio
async def test_a_request_that_fails_says_so_and_no_more() -> None:
    async def fail(sender: object, message: bytes) -> bytes:
        if message == b"known":
            raise NotFound("no such thing")
        raise RuntimeError("a secret")

    listener = Listener(on_request=fail)
    with pytest.raises(NotFound):
        await listener.request(node(2), b"known")
    with pytest.raises(Fault) as caught:
        await listener.request(node(2), b"unknown")
    assert "a secret" not in str(caught.value)
    with pytest.raises(Fault):
        await Listener().request(node(2), b"")
