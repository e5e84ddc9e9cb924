from pathlib import Path

import pytest

from hawker.host.packet_counts import TrackedConnections
from hawker.settings import Settings
from hawker.worker.reconcile.findings import Finding, Kind
from hawker.worker.reconcile.host_notices import HostNotices


def notices(entries: int = 0, *, networked: bool = True, cloud: str = "", allow: tuple[str, ...] = ()) -> list[Finding]:
    settings = Settings(data_dir=Path("/nowhere"), egress_allow=allow)
    table = TrackedConnections(entries, 100)
    return list(HostNotices(settings, networked=networked, cloud=cloud, connections=lambda: table)())


@pytest.mark.parametrize("entries, kinds", [(79, []), (80, [Kind.FULL_CONNECTIONS]), (100, [Kind.FULL_CONNECTIONS])])
def test_a_table_of_connections_that_is_nearly_full_is_told(entries: int, kinds: list[Kind]) -> None:
    assert [each.kind for each in notices(entries)] == kinds


def test_a_host_whose_kernel_tracks_nothing_has_no_table_to_tell_of() -> None:
    settings = Settings(data_dir=Path("/nowhere"))
    assert HostNotices(settings, networked=True, cloud="", connections=lambda: None)() == []


def test_machines_that_use_the_network_of_a_clouds_instance_are_told() -> None:
    (found,) = notices(networked=False, cloud="AWS")
    assert (found.kind, found.about) == (Kind.EXPOSED_METADATA, "AWS")
    assert notices(networked=False) == [] == notices(cloud="AWS", allow=("private", "10.0.0.0/8"))


def test_metadata_that_the_operator_opened_is_told_in_a_cloud() -> None:
    (found,) = notices(cloud="AWS", allow=("private", "169.254.169.254"))
    assert "169.254.169.254/32" in found.detail


def test_a_store_without_a_reserve_is_told_with_its_reason() -> None:
    settings, lack = Settings(data_dir=Path("/nowhere")), ["No space left on device"]
    found = HostNotices(settings, networked=True, cloud="", connections=lambda: None, lacks_reserve=lambda: lack[0])
    assert [(each.kind, each.about) for each in found()] == [(Kind.NO_RESERVE, "store")]
    lack[0] = ""
    assert found() == []


def test_a_damaged_backup_is_told_with_what_is_wrong() -> None:
    settings = Settings(data_dir=Path("/nowhere"))
    damaged = [("acme/web/vol_a/20261123T161500Z-aaaa", "packs/ab/cd is not there")]
    (found,) = HostNotices(settings, networked=True, cloud="", connections=lambda: None, damaged=lambda: damaged)()
    assert (found.kind, found.about, found.detail) == (Kind.DAMAGED_BACKUP, *damaged[0])
