"""What the launcher's tests share: the trial of this host, with control groups that no node of another process has."""

import hashlib
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from hawker.clock import SystemClock
from hawker.host.mapping_trial import TRIED_ID
from hawker.runtime.container import launcher_trial
from hawker.runtime.launcher.launcher_trial import LauncherTrial
from tests.node_ids import own_node_id


@pytest.fixture(params=[TRIED_ID, None], ids=["ids of its own", "the host's ids"])
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LauncherTrial]:
    trial = launcher_trial(_own_place(tmp_path), "this-boot", SystemClock(), request.param)
    yield trial
    for machine_id in trial.cgroups.list():
        trial.cgroups.remove(machine_id)


def _own_place(folder: Path) -> Path:
    """A node's directory whose trial has a name, made of it, that begins as this process's own nodes do."""
    beginning = own_node_id()[:2]
    places = (folder / f"node-{number}" for number in count())
    return next(place for place in places if hashlib.sha256(os.fsencode(place)).hexdigest().startswith(beginning))
