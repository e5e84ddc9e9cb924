from hawker.catalog.replica import SendQueue
from hawker.clock import ManualClock
from tests.catalog.kit import A, B


def test_messages_go_in_their_order_as_fast_as_they_may() -> None:
    clock = ManualClock()
    outbox = SendQueue(clock, per_s=10)
    for raw in (b"12345", b"67890", b"12345"):
        outbox.put(A, raw)
    assert outbox.take() == [(A, b"12345"), (A, b"67890")]
    assert outbox.wait_s() == 0.5
    clock.advance(0.6)
    assert outbox.take() == [(A, b"12345")]
    assert outbox.wait_s() == float("inf") and outbox.bytes == 0


def test_the_oldest_goes_when_too_much_waits() -> None:
    outbox = SendQueue(ManualClock(), queue=8)
    outbox.put(A, b"12345")
    outbox.put(B, b"67890")
    assert outbox.take() == [(B, b"67890")]
    assert outbox.dropped == 1
