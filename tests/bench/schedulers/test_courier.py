from bench.schedulers.costs import Costs
from bench.schedulers.courier import Answer, Word
from bench.schedulers.host import Host
from bench.schedulers.timeline import Process
from bench.schedulers.workload import Order
from tests.bench.schedulers.pieces import Stage, order, stage

LOSES_ALL = Costs(loss=1.0)


def sent(on: Stage, there: Host, one: Order) -> list[Answer]:
    """Where its answer will be."""
    answers: list[Answer] = []

    def asks() -> Process[None]:
        answers.append((yield from on.tools.courier.deliver(there, one)))

    on.timeline.resume(asks())
    return answers


def delivered(on: Stage, there: Host, one: Order) -> Word:
    answers = sent(on, there, one)
    on.timeline.run(until=on.timeline.now + 10.0)
    return answers[0].word


def test_a_host_with_room_fills_the_order() -> None:
    on = stage()
    assert delivered(on, on.hosts[0], order()) is Word.FILLED
    assert on.notary.fills == 1 and list(on.hosts[0].machines) == [0]


def test_a_host_without_room_says_so() -> None:
    on = stage()
    assert delivered(on, on.hosts[0], order(memory_mib=1 << 20)) is Word.NO_ROOM


def test_a_host_that_is_down_is_not_reached() -> None:
    on = stage()
    on.fleet.fail(on.hosts[0], for_good=True)
    assert delivered(on, on.hosts[0], order()) is Word.UNREACHABLE


def test_after_silence_the_order_is_nowhere_and_stays_so() -> None:
    """Whether the answer was lost or the order itself, which comes after its cancel."""
    on = stage(costs=LOSES_ALL)
    for number in range(20):
        assert delivered(on, on.hosts[0], order(number)) is Word.UNREACHABLE
    assert on.notary.fills > 0 and not on.hosts[0].machines and on.notary.breaches == []


def test_when_the_host_dies_before_it_answers_nobody_knows() -> None:
    on = stage(costs=Costs(delay_s=1.0, loss=0.0))
    answers = sent(on, on.hosts[0], order())
    while not on.hosts[0].machines:
        on.timeline.run(until=on.timeline.now + 0.1)
    on.fleet.fail(on.hosts[0], for_good=True)
    on.timeline.run(until=10.0)
    assert [answer.word for answer in answers] == [Word.IN_DOUBT]
