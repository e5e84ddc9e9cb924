"""What a mount may say, and what is refused by the field's name."""

from typing import Any

import msgspec
import pytest

from hawker.config import MachineConfig
from hawker.config.rules import mounts

GOOD = {"volume": "vol_0123456789abcdef", "path": "/data"}


def complaints(*given: dict[str, Any], **fields: Any) -> list[str]:
    return list(mounts(msgspec.convert({"image": "a", "mounts": given, **fields}, MachineConfig)))


@pytest.mark.parametrize(
    "mount",
    [
        GOOD,
        {"name": "data", "path": "/var/lib/data/"},
        {**GOOD, "size_gb": 0, "encrypted": True, "extend_threshold_percent": 0},
        {**GOOD, "extend_threshold_percent": 80, "add_size_gb": 1, "size_gb_limit": 10},
        {**GOOD, "path": "/process"},
        {**GOOD, "path": "//data//of"},
    ],
)
def test_mounts_of_clients_are_fine(mount: dict[str, Any]) -> None:
    assert complaints(mount) == [] == complaints()


@pytest.mark.parametrize(
    ("mount", "says"),
    [
        ({"path": "/data"}, "mounts[0].volume is required"),
        ({"volume": "v"}, "mounts[0].path must be an absolute path"),
        ({**GOOD, "path": "data"}, "mounts[0].path must be an absolute path"),
        ({**GOOD, "path": "/da\0ta"}, "mounts[0].path must be an absolute path"),
        ({**GOOD, "path": "/" + "a" * 2000}, "mounts[0].path must be an absolute path"),
        ({**GOOD, "path": "/"}, "must be below the root"),
        ({**GOOD, "path": "//"}, "must be below the root"),
        ({**GOOD, "path": "/data/../../etc"}, "must be below the root and without .."),
        ({**GOOD, "path": "/proc"}, "is the platform's"),
        ({**GOOD, "path": "/proc/self/"}, "is the platform's"),
        ({**GOOD, "path": "/./dev/shm"}, "is the platform's"),
        ({**GOOD, "path": "/.hawker/pilot"}, "is the platform's"),
        ({**GOOD, "path": "//.hawker"}, "is the platform's"),
        ({**GOOD, "path": "//./proc/self"}, "is the platform's"),
        ({**GOOD, "path": "///sys"}, "is the platform's"),
        ({**GOOD, "size_gb": -1}, "size_gb must be between"),
        ({**GOOD, "extend_threshold_percent": 80}, "add_size_gb is required"),
        ({**GOOD, "extend_threshold_percent": 100, "add_size_gb": 1}, "between 1 and 99"),
    ],
)
def test_an_impossible_mount_is_refused_by_name(mount: dict[str, Any], says: str) -> None:
    assert any(says in complaint for complaint in complaints(mount))


def test_a_machine_has_one_volume_at_most_and_none_beside_containers() -> None:
    assert "at most one volume" in complaints(GOOD, GOOD)[0]
    assert "containers" in complaints(GOOD, containers=[{"name": "c", "image": "a"}])[0]
