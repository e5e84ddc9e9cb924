from typing import Any

import msgspec
import pytest

from hawker.api.contract.volume import CreateVolumeRequest
from hawker.clock import ManualClock
from hawker.errors import Unprocessable
from hawker.ids import AppName, is_volume_id
from hawker.record.volume import Fstype, VolumeRecord, VolumeState
from hawker.worker.volumes.orders import new_volume

NULLS = dict.fromkeys(CreateVolumeRequest.__struct_fields__)


def ordered(**fields: Any) -> VolumeRecord:
    body = msgspec.convert({"name": "data", **fields}, CreateVolumeRequest)
    return new_volume(ManualClock(), AppName("web"), "local", body, encrypted=False, max_gb=500)


@pytest.mark.parametrize("fields", [{}, {**NULLS, "name": "data"}], ids=["absent", "null"])
def test_what_is_not_said_is_the_contract_s_default(fields: dict[str, Any]) -> None:
    record = ordered(**fields)
    assert is_volume_id(record.id) and record.state is VolumeState.CREATING
    assert (record.size_gb, record.fstype, record.snapshot_retention, record.auto_backup) == (3, Fstype.EXT4, 5, True)
    assert record.machine is None and record.holds.disk_mib == 3 * 1024


def test_what_is_said_is_kept() -> None:
    record = ordered(name="my_data-2", size_gb=7, snapshot_retention=60, auto_backup_enabled=False)
    assert (record.name, record.size_gb, record.snapshot_retention, record.auto_backup) == ("my_data-2", 7, 60, False)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": ""}, "is not a volume's name"),
        ({"name": "../etc"}, "is not a volume's name"),
        ({"name": "a" * 64}, "is not a volume's name"),
        ({"size_gb": 0}, "size_gb must be between 1 and 500"),
        ({"size_gb": -3}, "size_gb must be between 1 and 500"),
        ({"size_gb": 501}, "size_gb must be between 1 and 500"),
        ({"size_gb": 10**30}, "size_gb must be between 1 and 500"),
        ({"snapshot_retention": 0}, "snapshot_retention must be between 1 and 60"),
        ({"snapshot_retention": 61}, "snapshot_retention must be between 1 and 60"),
        ({"fstype": "raw"}, "raw volumes are not served"),
    ],
)
def test_what_cannot_be_is_refused_by_name(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(Unprocessable, match=says):
        ordered(**fields)
