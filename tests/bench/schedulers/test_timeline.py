from bench.schedulers.timeline import PARKED, Desk, Process, Timeline


def test_events_come_by_time_and_equal_ones_as_planned() -> None:
    timeline, seen = Timeline(), list[str]()
    timeline.call(2.0, seen.append, "late")
    timeline.call(1.0, seen.append, "first")
    timeline.call(1.0, seen.append, "second")
    timeline.run(until=1.5)
    assert seen == ["first", "second"] and timeline.now == 1.5
    timeline.run(until=3.0)
    assert seen[-1] == "late"


def test_a_process_waits_as_long_as_it_says() -> None:
    timeline, seen = Timeline(), list[float]()

    def waits() -> Process[None]:
        yield 1.0
        seen.append(timeline.now)
        yield 0.5
        seen.append(timeline.now)

    timeline.resume(waits())
    timeline.run(until=10.0)
    assert seen == [1.0, 1.5]


def test_a_parked_process_waits_until_it_is_resumed() -> None:
    timeline, seen = Timeline(), list[float]()

    def parks() -> Process[None]:
        yield PARKED
        seen.append(timeline.now)

    process = parks()
    timeline.resume(process)
    timeline.run(until=5.0)
    assert seen == []
    timeline.resume(process)
    timeline.run(until=6.0)
    assert seen == [5.0]


def test_a_desk_serves_one_after_another() -> None:
    timeline = Timeline()
    desk = Desk(timeline)
    assert [desk.serve(1.0), desk.serve(0.5)] == [1.0, 1.5]
    timeline.run(until=4.0)
    assert desk.serve(1.0) == 1.0
