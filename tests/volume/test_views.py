import msgspec

from hawker.api.codec import encode_json
from hawker.ids import AppName, MachineId, VolumeId
from hawker.record.volume import VolumeRecord, VolumeState
from hawker.volume.disks import Usage
from hawker.volume.views import org_volume, volume

RECORD = VolumeRecord(
    id=VolumeId("vol_0000000000000001"),
    app=AppName("web"),
    name="data",
    region="local",
    state=VolumeState.CREATED,
    size_gb=1,
    created_at=0.0,
    updated_at=60.0,
)


def test_a_free_volume_is_attached_to_null_and_never_to_an_empty_word() -> None:
    sent = msgspec.json.decode(encode_json(volume(RECORD, "host", None)))
    assert sent["attached_machine_id"] is None and sent["attached_alloc_id"] is None
    assert (sent["host_status"], sent["created_at"], sent["zone"]) == ("ok", "1970-01-01T00:00:00Z", "host")
    assert "blocks" not in sent and "bytes_used" not in sent


def test_figures_follow_from_blocks() -> None:
    usage = Usage(block_size=4096, blocks=100, blocks_free=60, blocks_avail=50)
    shown = volume(msgspec.structs.replace(RECORD, machine=MachineId("00000000000001")), "host", usage)
    assert shown.attached_machine_id == "00000000000001"
    assert (shown.bytes_total, shown.bytes_used, shown.blocks_avail) == (409_600, 163_840, 50)


def test_an_organization_s_list_says_whose_it_is() -> None:
    shown = org_volume(RECORD, "host", None)
    assert (shown.app_name, shown.updated_at.second, shown.updated_at.minute) == ("web", 0, 1)
