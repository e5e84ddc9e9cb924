"""Facts about the trial of mapped ids."""

import os
from pathlib import Path

import pytest

from hawker.host import mapping_trial
from hawker.host.mapping_trial import lack_of_mapping
from hawker.host.mount import mounts


@pytest.mark.root
def test_a_host_that_maps_ids_lacks_nothing_and_is_left_as_it_was(tmp_path: Path) -> None:
    assert lack_of_mapping(tmp_path / "data") == ""
    assert list(tmp_path.iterdir()) == [] and mounts(tmp_path) == []


def test_a_process_that_is_not_root_maps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert lack_of_mapping(tmp_path) == "only root can map ids"


@pytest.mark.root
def test_a_kernel_that_refuses_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mapping_trial, "fresh_overlay", refuse)
    assert "does not map ids" in lack_of_mapping(tmp_path) and list(tmp_path.iterdir()) == []
