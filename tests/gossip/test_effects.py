from hawker.gossip.effects import EffectBuffer, Forgot
from tests.gossip.single_core import node


def test_effects_are_taken_once() -> None:
    outbox = EffectBuffer()
    outbox.send("2:1", b"x")
    outbox.tell(Forgot(node(2), 1))
    taken = outbox.taken()
    assert [send.address for send in taken.sends] == ["2:1"] and taken.events == [Forgot(node(2), 1)]
    assert not outbox.taken().sends
