from hawker.sim.harness.trace import Speaker, Trace


def test_the_digest_is_of_every_line_kept_or_not() -> None:
    kept, short, other = Trace(True), Trace(False), Trace(False)
    for trace in (kept, short):
        trace.add(1.5, Speaker.COMMIT, "1 durable")
        trace.add(61.25, Speaker.CLIENT, "ann: create")
    other.add(61.25, Speaker.CLIENT, "ann: create")
    assert kept.digest == short.digest != other.digest
    assert len(kept.lines) == 2 and len(short.lines) == 1


def test_a_line_says_minutes_and_seconds() -> None:
    trace = Trace()
    trace.add(61.25, Speaker.CLIENT, "ann: create")
    assert str(trace.lines[0]) == "    1:01.250000  client  ann: create"
