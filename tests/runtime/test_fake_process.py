"""Facts about a process of the fake driver's machine."""

import math

from hawker.runtime.driver import Exit, Run
from hawker.runtime.fake_process import FakeProcess
from hawker.runtime.spec import FileSpec, ProcessSpec

SLEEPS = ProcessSpec(argv=("sleep", "5"), env={}, name="web")
CAT = ProcessSpec(argv=("cat", "/f"), env={}, name="web", root="/r", files=(FileSpec(path="/f", content=b"own"),))


def test_it_is_held_until_its_first_run() -> None:
    process = FakeProcess(SLEEPS, 1)
    assert (process.told().state, process.told().run, process.ends_at) == (Run.HELD, 0, math.inf)


def test_a_run_has_a_number_a_pid_and_an_end() -> None:
    process = FakeProcess(SLEEPS, 1)
    process.begin(100.0, {})
    told = process.told()
    assert (told.name, told.state, told.run, told.pid, told.started_at) == ("web", Run.RUNNING, 1, 3, 100.0)
    assert process.ends_at == 105.0


def test_the_last_exit_is_kept_through_the_next_run() -> None:
    process, exit = FakeProcess(SLEEPS, 0), Exit(exit_code=3, exited_at=105.0)
    process.begin(100.0, {})
    process.end(exit)
    assert (process.told().state, process.told().exit, process.told().pid) == (Run.EXITED, exit, None)
    process.begin(106.0, {})
    assert (process.told().run, process.told().exit, process.told().last_exit) == (2, None, exit)


def test_a_container_sees_its_own_files() -> None:
    assert FakeProcess(CAT, 0).begin(1.0, {"/f": b"the machine's"}).output == ((1, b"own"),)
