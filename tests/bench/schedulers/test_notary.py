from bench.schedulers.host import Host
from bench.schedulers.notary import Notary, Promise
from tests.bench.schedulers.pieces import host, order


def fill(notary: Notary, there: Host, number: int = 0, memory_mib: int = 1024) -> None:
    one = order(number, memory_mib=memory_mib)
    there.take(one)
    notary.filled(there, one)


def promises(notary: Notary) -> list[Promise]:
    return [breach.promise for breach in notary.breaches]


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    there = host()
    notary = Notary([there])
    fill(notary, there)
    notary.acknowledged(there, order())
    there.release(order())
    notary.released(there, order())
    notary.close(orders=1)
    assert notary.breaches == [] and notary.machines == 0 and notary.fills == 1


def test_a_host_that_sold_more_than_it_has_is_found() -> None:
    there = host(memory_mib=2048)
    notary = Notary([there])
    for number in range(3):
        fill(notary, there, number)
    assert promises(notary) == [Promise.NOT_OVERSOLD]
    assert notary.breaches[0].what == "sold 3 of 64 cpus, 3072 of 2048 MiB"


def test_an_order_that_fills_twice_is_found_even_after_its_machine_ended() -> None:
    one, other = host(0), host(1)
    notary = Notary([one, other])
    fill(notary, one)
    notary.filled(other, order())
    notary.released(one, order())
    notary.filled(other, order())
    assert promises(notary) == [Promise.FILLS_ONCE, Promise.FILLS_ONCE]


def test_an_order_may_fill_again_once_it_was_cancelled() -> None:
    one, other = host(0), host(1)
    notary = Notary([one, other])
    fill(notary, one)
    notary.released(one, order())
    notary.cancelled(order())
    notary.filled(other, order())
    assert notary.breaches == []


def test_a_lost_record_is_found() -> None:
    there = host()
    notary = Notary([there])
    fill(notary, there)
    there.release(order())
    notary.back(there)
    assert promises(notary) == [Promise.KEPT, Promise.SUMS]


def test_room_that_is_not_given_back_is_found() -> None:
    there = host()
    notary = Notary([there])
    fill(notary, there)
    del there.machines[0]
    notary.released(there, order())
    notary.inspect()
    assert promises(notary) == [Promise.SUMS]


def test_an_acknowledged_order_that_nobody_filled_is_found() -> None:
    notary = Notary([host()])
    notary.acknowledged(host(), order())
    assert promises(notary) == [Promise.KEPT]


def test_an_order_without_an_answer_and_one_with_two_are_found() -> None:
    notary = Notary([host()])
    notary.refused(order(0))
    notary.refused(order(0))
    notary.close(orders=2)
    assert [breach.what for breach in notary.breaches] == ["got a second answer", "1 got no answer"]


def test_machine_of_host_that_never_comes_back_is_no_breach() -> None:
    there = host()
    notary = Notary([there])
    fill(notary, there)
    notary.lost(there)
    there.machines.clear()
    notary.inspect()
    assert notary.breaches == [] and notary.lost_with_hosts == 1


def test_only_the_first_breaches_are_kept() -> None:
    notary = Notary([host()])
    for number in range(100):
        notary.acknowledged(host(), order(number))
    assert len(notary.breaches) == 20
