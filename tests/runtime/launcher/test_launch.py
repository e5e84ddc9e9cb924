"""Facts about the launcher's one answer."""

import os
from pathlib import Path

import pytest

from hawker.errors import Unavailable
from hawker.runtime.launcher import launch
from hawker.runtime.launcher.launch import LaunchAnswer, read_answer, run_launcher
from hawker.runtime.launcher.plan import PlanWriter, Record

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("told", "answer"),
    [
        ("pid 4711\n", LaunchAnswer(pid=4711, error="", status=0)),
        ("pid 4711\nfailed 2 mount /proc: no\n", LaunchAnswer(pid=4711, error="mount /proc: no", status=0)),
        ("failed 1 first\nfailed 1 second\n", LaunchAnswer(pid=None, error="first", status=0)),
        ("", LaunchAnswer(pid=None, error="", status=0)),
        ("pid x\nnonsense\n", LaunchAnswer(pid=None, error="", status=0)),
    ],
)
def test_lines_become_an_answer_and_the_first_failure_counts(told: str, answer: LaunchAnswer) -> None:
    assert read_answer(told, 0) == answer


def _host_plan(tmp_path: Path, script: str) -> Path:
    plan = PlanWriter()
    plan.add(Record.RUN_ON_HOST)
    for word in ("/bin/sh", "-c", script):
        plan.add(Record.ARG, word)
    (tmp_path / "plan").write_bytes(plan.finish())
    return tmp_path / "plan"


async def test_descriptors_are_passed_and_the_end_is_told(tmp_path: Path) -> None:
    with (tmp_path / "given").open("w") as given:
        answer = await run_launcher(_host_plan(tmp_path, "echo seen >&3; exit 5"), [given.fileno()])
    assert answer == LaunchAnswer(pid=None, error="", status=5)
    assert (tmp_path / "given").read_text() == "seen\n"


async def test_a_plan_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "open the plan" in (await run_launcher(tmp_path / "nothing", [])).error


async def test_a_launcher_that_does_not_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for a plan that never comes to its end."""
    monkeypatch.setattr(launch, "_TIMEOUT_S", 0.2)
    reading, writing = os.pipe()
    monkeypatch.setattr(launch, "spawn", lambda argv, *, fds, **streams: _holding(fds))
    with pytest.raises(Unavailable, match="did not answer"):
        await run_launcher(tmp_path / "plan", [])
    os.close(reading)
    os.close(writing)


def _holding(fds: tuple[int, ...]) -> int:
    """A process that holds the pipe open and says nothing."""
    actions = [(os.POSIX_SPAWN_DUP2, fds[-1], 3)]
    return os.posix_spawn("/bin/sleep", ["sleep", "60"], {}, file_actions=actions)
