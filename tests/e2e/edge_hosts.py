"""Hosts with links of their own, whose nodes serve at their addresses."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hawker.chaos.fleet.network_lab import NetworkLab
from hawker.chaos.fleet.real_fleet import LabFleet
from hawker.clock import SystemClock


@contextmanager
def edge_hosts(tmp_path: Path, hosts: int, regions: Sequence[str] = ("mad",)) -> Iterator[LabFleet]:
    """Each has its number from 0 as the label `host`. Nothing is left of them."""
    for name in ("street", "nodes"):
        (tmp_path / name).mkdir()
    with NetworkLab(tmp_path / "street", hosts) as lab:
        fleet = LabFleet(lab, tmp_path / "nodes", SystemClock(), driver="container", regions=regions)
        for number, stall in enumerate(fleet.stalls):
            flags = ("--label", f"host={number}", "--edge-address", stall.host.address)
            stall.daemon.flags = (*stall.daemon.flags, *flags)
        with fleet:
            yield fleet
    assert not fleet.left, f"left on the hosts: {fleet.left}"
