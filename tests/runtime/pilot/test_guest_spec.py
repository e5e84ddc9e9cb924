"""The third part of a run spec, byte by byte, and where it is not."""

import msgspec
import pytest

from hawker.errors import BadRequest
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.messages import encode_guest_spec
from hawker.runtime.spec import GuestLink, InstanceSpec, RootDisk, VolumeDisk
from tests.runtime.plain import spec

PLAIN = spec("true")
LINK = GuestLink(mac="06:00:c0:ff:ee:42", addresses=("fdaa::3/64", "172.19.0.3/16"), gateways=("fdaa::1",), mtu=1420)
VOLUME = VolumeDisk(name="vol-1", file="/host/vol-1", target="/data", read_only=True)
SETTINGS = ("net.ipv4.ip_unprivileged_port_start=0", "net.ipv4.ping_group_range=0 2147483647")


def guest(**fields: object) -> InstanceSpec:
    return msgspec.structs.replace(PLAIN, root_disk=RootDisk(image="/host/image", layer="/host/layer"), **fields)


def test_a_machine_with_the_host_s_kernel_is_told_nothing_of_disks() -> None:
    assert encode_guest_spec(PLAIN, 5.0) == b""
    assert messages.run_spec(PLAIN, contained=True, now=5.0) == messages.run_spec(PLAIN, contained=True, now=9.0)


def test_a_machine_is_told_its_time_disks_volumes_settings_and_link() -> None:
    told = frames.number(1_500_000_000, 8) + frames.string("image") + frames.string("layer") + frames.number(1, 4)
    told += frames.string("vol-1") + frames.string("ext4") + frames.string("/data") + b"\1"
    told += frames.string("") + frames.strings(SETTINGS) + b"\1"
    told += frames.string("eth0") + b"\x06\x00\xc0\xff\xee\x42" + frames.number(1420, 2)
    told += frames.strings(("fdaa::3/64", "172.19.0.3/16")) + frames.strings(("fdaa::1",))
    assert encode_guest_spec(guest(volumes=(VOLUME,), link=LINK), 1.5) == told
    assert b"/host/" not in told


def test_the_last_part_comes_last_and_is_announced_whatever_else_there_is() -> None:
    named = tuple(msgspec.structs.replace(process, name="web") for process in PLAIN.processes)
    flags_at = len(frames.string(PLAIN.instance_id) + frames.string(PLAIN.hostname))
    for processes, flags in ((PLAIN.processes, 1 | 4), (named, 1 | 2 | 4)):
        encoded = messages.run_spec(guest(processes=processes), contained=True, now=1.0)
        assert encoded[flags_at] == flags and encoded.endswith(encode_guest_spec(guest(), 1.0))
    assert encode_guest_spec(guest(), 1.0).endswith(b"\0")  # no link


def test_a_spec_no_pilot_takes_is_refused() -> None:
    with pytest.raises(BadRequest, match="32 volumes, not 33"):
        encode_guest_spec(guest(volumes=(VOLUME,) * 33), 1.0)
    for mac in ("", "06:00:c0:ff:ee", "06:00:c0:ff:ee:4g", "06:00:c0:ff:ee:42:07"):
        with pytest.raises(BadRequest, match="hardware address"):
            encode_guest_spec(guest(link=msgspec.structs.replace(LINK, mac=mac)), 1.0)
