"""Facts about the trial that says once a boot whether our launcher may be used."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from hawker.runtime.launcher import launcher_trial
from hawker.runtime.launcher.launcher_trial import LauncherTrial

pytestmark = [pytest.mark.root, pytest.mark.anyio]


async def test_the_trial_of_a_host_is_remembered_and_leaves_nothing(
    trial: LauncherTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_trial, "_EXECUTED_S", 15.0)  # its programs wait for 20 s
    (tmp_path / "run").mkdir()
    trial = replace(trial, place=tmp_path / "run")
    first = await trial.run()
    assert (first.alike, first.reason) == (True, "its box is crun's")
    [kept] = (tmp_path / "run").iterdir()
    written = kept.read_bytes()
    assert await trial.run() == first
    assert kept.read_bytes() == written
    assert trial.cgroups.list() == []


async def test_without_its_judge_our_launcher_is_not_trusted(
    trial: LauncherTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    found = await replace(trial, place=tmp_path).run()
    assert not found.alike
    assert "apt-get install crun" in found.reason


async def test_a_trial_that_could_not_be_made_is_not_remembered(trial: LauncherTrial, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = await replace(trial, place=tmp_path / "file").run()
    assert not found.alike
    assert "could not be tried" in found.reason
