"""The pilot program: runs of single processes, in a machine that ends when it is told to."""

import os
import shutil
import signal
import stat
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hawker import guest
from hawker.runtime.driver import ExecSpec, ProcessPhase
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.frames import FrameKind, PayloadReader
from tests.guest.pilot import Pilot, pilot, spec
from tests.guest.vm import make_tree
from tests.waiting import wait_for


def refusal(running: Pilot) -> str:
    return PayloadReader(running.take(FrameKind.REFUSED).payload).string()


def begun(running: Pilot, encoded: bytes) -> Pilot:
    running.run(encoded)
    running.take(FrameKind.READY)
    return running


def test_watcher_is_told_all_states_and_then_every_change(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        begun(running, spec("sleep 1000", "sleep 1000", told=True, held=(1,)))
        states = running.watch()
        assert [(states[index].state, states[index].run) for index in (0, 1)] == [
            (ProcessPhase.RUNNING, 1),
            (ProcessPhase.HELD, 0),
        ]
        running.stream.sendall(messages.run_request(9, 1, 1))
        assert running.until(1, ProcessPhase.RUNNING).pid is not None
        running.stream.sendall(messages.end_request(9, 0, signal.SIGTERM, 5.0))
        ended = running.until(0, ProcessPhase.EXITED)
        assert ended.last_exit is not None and ended.last_exit.signal == signal.SIGTERM


def test_a_second_watch_takes_the_place_of_the_first(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        begun(running, spec("sleep 1000", told=True))
        running.watch(7)
        running.watch(8)
        running.stream.sendall(messages.end_request(9, 0, signal.SIGTERM, 5.0))
        channels = {running.take(FrameKind.STATE).channel for _ in range(2)}
        assert channels == {8, 9}


def test_a_machine_whose_processes_are_all_held_is_ready(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        begun(running, spec("exit 1", "exit 1", told=True, held=(0, 1)))
        assert running.program.poll() is None


def test_a_run_that_was_begun_is_answered_and_not_begun_again(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        begun(running, spec("echo once; sleep 1000", told=True, held=(0,)))
        for _ in range(3):
            running.stream.sendall(messages.run_request(9, 0, 1))
            assert running.state()[1].run == 1
        wait_for(running.output)
        assert [chunk.data for chunk in running.output()] == [b"once\n"]


@pytest.mark.parametrize("told", [True, False])
def test_a_client_at_a_process_is_told_of_its_end_once_it_has_read_all(told: bool, tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        begun(running, spec("read go; echo done", told=told, stdin=True))
        running.watch(7)
        running.stream.sendall(messages.attach_request(1, 0, 0, 0))
        running.take(FrameKind.ATTACHED)
        running.send(FrameKind.STDIN, 1, b"go\n")
        said = running.take(FrameKind.STDOUT).payload
        assert said == b"done\n"
        running.until(0, ProcessPhase.EXITED)
        running.send(FrameKind.WATCH, 8)
        while (frame := running.next()).kind != FrameKind.WATCHING:
            assert frame.kind != FrameKind.EXIT
        running.send(FrameKind.CREDIT, 1, frames.number(len(said), 4))
        assert running.exit().exit_code == 0


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (messages.run_request(9, 0, 2), "the run before goes on"),
        (messages.run_request(9, 1, 2), "the run before was never begun"),
        (messages.run_request(9, 2, 1), "no such process"),
        (messages.end_request(9, 255, 15, 1.0), "no such process"),
        (messages.conclude_request(9, 0), "the process has not ended"),
        (messages.conclude_request(9, 1), "the process has not ended"),
    ],
)
def test_impossible_run_is_refused_and_nothing_else(tmp_path: Path, request_: bytes, why: str) -> None:
    with pilot(tmp_path) as running:
        begun(running, spec("sleep 1000", "sleep 1000", told=True, held=(1,)))
        running.stream.sendall(request_)
        assert refusal(running) == why
        assert running.watch()[0].state is ProcessPhase.RUNNING


def test_the_conclusion_is_told_and_recorded(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        begun(running, spec("exit 3", "sleep 1000", told=True, held=(0,)))
        running.watch()
        running.stream.sendall(messages.run_request(9, 0, 1))
        running.until(0, ProcessPhase.EXITED)
        running.stream.sendall(messages.conclude_request(9, 0))
        told = running.exit()
        assert (told.exit_code, told.process, running.status()) == (3, 0, 3)
        story = running.story()
        assert story.final_exit == told == story.runs[0].last_exit
        assert story.runs[1].state is ProcessPhase.EXITED and story.first_exit is None


def test_empty_input_is_the_same_for_all_runs(tmp_path: Path) -> None:
    """It is what was opened before the first: later, a machine may have put anything at its path."""
    mark = f"{sys.executable} -c 'import fcntl, os; fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK)'"
    with pilot(tmp_path) as running:
        begun(running, spec(f"readlink /proc/self/fd/0; grep ^flags /proc/self/fdinfo/0; {mark}", told=True, held=(0,)))
        running.watch()
        run_to_its_end(running, 1)
        run_to_its_end(running, 2)
        wait_for(lambda: len(_said(running).split()) == 6)  # pipes may be read past the exit
        path, _, flags, again, _, marked = _said(running).split()
        assert path == again == "/dev/null"
        assert int(marked, 8) == int(flags, 8) | os.O_NONBLOCK


def run_to_its_end(running: Pilot, run: int) -> None:
    running.stream.sendall(messages.run_request(9, 0, run))
    running.until(0, ProcessPhase.EXITED, run)


def _said(running: Pilot) -> str:
    return b"".join(chunk.data for chunk in running.output()).decode()


@pytest.mark.root
def test_empty_input_is_never_what_a_machine_puts_in_its_place(tmp_path: Path) -> None:
    root, null = tmp_path / "root", tmp_path / "root/dev/null"
    make_tree(root)
    shutil.copy(guest.pilot_path(), root / "pilot")
    (root / "secret").write_text("of the host")
    null.parent.mkdir()
    os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with pilot(tmp_path, command=("chroot", str(root), "/pilot")) as running:
        begun(running, spec("echo begun; cat", told=True, held=(0,)))
        running.watch()
        run_to_its_end(running, 1)
        null.unlink()
        null.symlink_to("/secret")
        run_to_its_end(running, 2)
        null.unlink()
        os.mkfifo(null)
        run_to_its_end(running, 3)
        wait_for(lambda: _said(running).split() == ["begun"] * 3)


def test_output_that_a_run_leaves_in_its_pipes_is_kept(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        begun(running, spec("head -c 40000 /dev/zero; exit 1", told=True))
        running.watch()
        for run in range(2, 31):  # often, so that a descriptor's number is used again while its old events are told
            while running.watch()[0].state is not ProcessPhase.EXITED:
                pass
            running.stream.sendall(messages.run_request(9, 0, run))
        running.until(0, ProcessPhase.EXITED, 30)
        running.program.terminate()
        running.status()
        assert sum(len(chunk.data) for chunk in running.output()) == 30 * 40_000


@pytest.mark.long(reason="1,200 runs; a machine's life in test_vm.py fills its journal more than once, too")
def test_the_journal_of_endless_runs_stays_short_and_true(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        begun(running, spec("sleep 1000", "exit 7", told=True, held=(1,)))
        running.watch()
        largest = 0
        for run in range(1, 1200):
            running.stream.sendall(messages.run_request(9, 1, run))
            running.until(1, ProcessPhase.EXITED, run)
            largest = max(largest, (tmp_path / "journal").stat().st_size)
            if run % 100 == 0:
                story = running.story()
                assert story.runs[1].run == run and story.runs[0].run == 1
        assert 32_000 < largest < 40_000, "it was written anew, and only then"
        running.program.kill()
        running.program.wait()
        story = running.story()
        left = story.runs[0].pid
        assert left is not None
        os.kill(left, signal.SIGKILL)  # nobody else will
        assert (story.instance_id, story.ready_at is not None) == ("instance-1", True)
        last = story.runs[1].last_exit
        assert story.runs[1].run == 1199 and last is not None and last.exit_code == 7


def test_client_of_version_1_cannot_ask_for_runs(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        running.send(FrameKind.HELLO, 0, frames.number(frames.MAGIC, 4) + frames.number(1, 2))
        running.send(FrameKind.WATCH, 1)
        assert refusal(running) == "protocol error"


def test_the_machine_itself_is_no_channel_to_watch(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        running.greet()
        running.send(FrameKind.WATCH, 0)
        assert refusal(running) == "protocol error"


def test_before_a_spec_there_is_no_process(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        running.greet()
        assert running.watch() == {}
        running.stream.sendall(messages.run_request(9, 0, 1))
        assert refusal(running) == "no such process"
        running.program.terminate()


def test_a_container_of_a_machine_without_a_root_is_malformed(tmp_path: Path) -> None:
    good = spec("sleep 1000", told=True)
    head, tail = good[: -len(frames.string("") * 2) - 5], frames.string("web") + frames.string("/r") + bytes(5)
    with pilot(tmp_path) as running:
        running.run(head + tail)
        assert refusal(running) == "malformed run spec"


def test_a_command_beside_a_process_follows_it(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        begun(running, spec("sleep 1000", "sleep 1000"))
        running.stream.sendall(messages.exec_request(3, ExecSpec(argv=("true",), process=1)))
        assert running.exit().exit_code == 0
        running.stream.sendall(messages.exec_request(4, ExecSpec(argv=("true",), process=2)))
        assert refusal(running) == "protocol error"


def test_processes_that_a_run_left_behind_end_with_it(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        begun(running, spec("sleep 974 & echo $!; exit 0", "sleep 1000", told=True))
        wait_for(running.output)
        left = int(running.output()[0].data)
        wait_for(lambda: not _runs(left))
        assert running.watch()[1].state is ProcessPhase.RUNNING


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_client_that_does_not_read_is_dropped_and_harms_nobody(tmp_path: Path) -> None:
    with pilot(tmp_path) as running:
        begun(running, spec("sleep 1000", told=True))
        with suppress(OSError):
            for _ in range(40_000):
                running.send(FrameKind.WATCH, 5)
        rss = int(Path(f"/proc/{running.program.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        assert running.program.poll() is None and rss < 8 << 20


_REQUESTS = st.sampled_from(
    [FrameKind.WATCH, FrameKind.RUN, FrameKind.END, FrameKind.CONCLUDE, FrameKind.EXEC, FrameKind.LIST]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.builds(
            frames.encode, _REQUESTS, st.integers(0, 3), st.one_of(st.binary(max_size=12), st.just(b"\0\1\0\0\0"))
        ),
        max_size=20,
    )
)
def test_hostile_requests_never_bring_it_down(tmp_path: Path, pieces: list[bytes]) -> None:
    with pilot(tmp_path) as running:
        begun(running, spec("sleep 1000", "exit 3", ("/nope",), told=True, held=(1,)))
        with suppress(OSError):  # it may cut us off before it has read all
            running.stream.sendall(b"".join(pieces))
        running.stream.close()
        running.program.terminate()
        status = running.status()
        assert status in (3, 127) or 128 < status <= 192, (
            "stopped, told to end, or concluded with an end that was there"
        )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_spec_of_containers_with_any_byte_changed_is_refused_or_run(tmp_path: Path, data: st.DataObject) -> None:
    encoded = bytearray(spec(("true",), ("false",), told=True, held=(1,)))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    with pilot(tmp_path) as running:
        running.run(bytes(encoded))
        answer = None
        while answer not in (FrameKind.REFUSED, FrameKind.EXIT, FrameKind.READY):
            answer = running.next().kind
        running.program.terminate()
        assert running.status() >= 0
