from pathlib import Path

import pytest

from hawker.errors import CannotStart
from hawker.settings import load_settings

CA = {"acme_directory": "https://ca.example.com/dir"}


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "hawker.toml"
    file.write_text('region = "mad"\nmachine_pids = 10\nshared_cpu_ratio = 2\n')
    settings = load_settings({"machine_pids": 30}, {"HAWKER_MACHINE_PIDS": "20", "HAWKER_EPHEMERAL": "true"}, file)
    assert (settings.region, settings.machine_pids, settings.ephemeral) == ("mad", 30, True)
    assert settings.listen == "127.0.0.1:4280" and settings.shared_cpu_ratio == 2.0


def test_an_unset_flag_does_not_hide_a_variable() -> None:
    assert load_settings({"region": None}, {"HAWKER_REGION": "ams"}).region == "ams"


def test_lists_in_variables_are_separated_by_commas() -> None:
    for text in ("a:5000,b", " a:5000, b,"):
        settings = load_settings({}, {"HAWKER_INSECURE_REGISTRIES": text})
        assert settings.insecure_registries == ("a:5000", "b")


def test_empty_variables_of_settings_are_as_good_as_not_set(tmp_path: Path) -> None:
    file = tmp_path / "hawker.toml"
    file.write_text('region = "mad"\n')
    settings = load_settings({}, {}, file)
    kinds = ("DATA_DIR", "ADVERTISE", "KERNEL", "CPUS", "EPHEMERAL", "NAMESERVERS", "REGION")
    assert load_settings({}, {f"HAWKER_{each}": "" for each in kinds}, file) == settings
    with pytest.raises(CannotStart, match="there is no setting regoin"):
        load_settings({}, {"HAWKER_REGOIN": ""})


@pytest.mark.parametrize(
    ("flags", "environ", "named"),
    [
        ({}, {"HAWKER_REGOIN": "mad"}, r"there is no setting regoin, did you mean region\?"),
        ({}, {"HAWKER_CPUS": "many"}, "cpus 'many' is not a whole number"),
        ({}, {"HAWKER_EPHEMERAL": "perhaps"}, "ephemeral 'perhaps' is neither true nor false"),
        ({"mesh": "vpn"}, {}, "mesh 'vpn' is none of auto, kernel"),
        ({"log_level": "loud"}, {}, "log_level 'loud' is none of debug, info, warning and error"),
        ({"region": "my region"}, {}, "region 'my region' is not a name"),
        ({"region": "a,b"}, {}, "region 'a,b' is not a name"),
        ({"nameservers": ("dns.example.com",)}, {}, "nameservers 'dns.example.com' is not an IP address"),
        ({"machine_pids": "x"}, {}, "machine_pids"),
        ({"api_hostname": "API.example.com", **CA}, {}, "api_hostname 'API.example.com' is not a host name such as"),
        ({"api_hostname": "a.example.com", "edge_addresses": ("none",), **CA}, {}, "api_hostname needs edge_addresses"),
        ({"memory_mib": 0}, {}, "memory_mib must be at least 1, not 0"),
        ({"shared_cpu_ratio": float("nan")}, {}, "shared_cpu_ratio"),
        ({}, {"HAWKER_IPV4_POOL": "banana"}, "ipv4_pool 'banana'"),
        ({"ipv4_pool": "10.0.0.0/30"}, {}, "ipv4_pool"),
        ({"watchdog_end_s": -1}, {}, "watchdog_end_s must be at least 0"),
        ({"edge_processes": 0}, {}, "edge_processes must be at least 1"),
        ({"edge_processes": 9}, {}, "edge_processes must be at most 8, not 9"),
        ({"edge_proxy_protocol_from": ("10.0.0.1/24",)}, {}, "edge_proxy_protocol_from '10.0.0.1/24' is not"),
        ({"public_ipv4": ("203.0.113.0/24", "banana")}, {}, "public_ipv4 'banana' is not a network"),
        ({"public_ipv4": ("203.0.113.5/24",)}, {}, "public_ipv4 '203.0.113.5/24'"),
        ({"public_ipv6": ("10.0.0.0/24",)}, {}, "public_ipv6 '10.0.0.0/24'"),
        ({}, {"HAWKER_PUBLIC_IPV4": "203.0.113.0/28,203.0.113.8/32"}, "addresses that another of its networks has"),
        ({"shared_ipv4": "2001:db8::1"}, {}, "shared_ipv4 '2001:db8::1'"),
        ({"gpu_devices": ("a10",)}, {}, "gpu_devices 'a10' is not KIND=PCI-ADDRESS"),
        ({}, {"HAWKER_GPU_DEVICES": "a10=0000:65:00.0,l40s=0000:65:00.0"}, "gpu_devices .* names too"),
        ({"otel_endpoint": ""}, {}, "otel_endpoint '' is not a URL"),
        ({"otel_endpoint": "collector:4318"}, {}, "otel_endpoint"),
        ({"otel_endpoint": "http://:4318"}, {}, "otel_endpoint"),
        ({"otel_endpoint": "http://[::1"}, {}, "otel_endpoint"),
        ({"otel_endpoint": "http://collector:99999"}, {}, "otel_endpoint"),
        ({"log_endpoint": "syslog://h"}, {}, "log_endpoint"),
        ({"log_endpoint": "loki+ftp://h"}, {}, "log_endpoint"),
        ({"catalog_url": ""}, {}, "catalog_url '' is not a URL such as http://127.0.0.1:8080"),
        ({"catalog_url": "127.0.0.1:8080"}, {}, "catalog_url '127.0.0.1:8080' is not a URL"),
        ({"catalog_url": "unix:///run/agent"}, {}, "catalog_url"),
        ({"catalog_url": "http://"}, {}, "catalog_url"),
        ({"catalog_url": "http://agent:port"}, {}, "catalog_url"),
        ({"catalog_url": "http://agent:8080 "}, {}, "catalog_url"),
        ({"catalog_url": "http://agent:8080/\r\nx: y"}, {}, "catalog_url"),
        ({"catalog_url": "http://agent:8080/?token=x"}, {}, "a token goes into catalog_token_file"),
        ({"catalog_url": "http://me:word@agent:8080"}, {}, "a token goes into catalog_token_file"),
    ],
)
def test_a_bad_setting_is_refused_by_name(flags: dict[str, object], environ: dict[str, str], named: str) -> None:
    with pytest.raises(CannotStart, match=named):
        load_settings(flags, environ)


def test_a_broken_file_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "hawker.toml"
    file.write_text("region = ")
    with pytest.raises(CannotStart, match=r"hawker\.toml"):
        load_settings({}, {}, file)


def test_the_clients_own_variables_are_not_settings() -> None:
    load_settings({}, {"HAWKER_URL": "http://x", "HAWKER_TOKEN": "t", "HAWKER_APP": "a", "HAWKER_GUEST_CC": "cc"})


def test_the_data_directory_is_absolute() -> None:
    assert load_settings({"data_dir": "here"}, {}).data_dir.is_absolute()


def test_egress_allow_takes_networks_and_one_word(tmp_path: Path) -> None:
    given = {"HAWKER_DATA_DIR": str(tmp_path), "HAWKER_EGRESS_ALLOW": "private,203.0.113.0/24,fd00::7"}
    assert load_settings({}, given).egress_allow == ("private", "203.0.113.0/24", "fd00::7")


@pytest.mark.parametrize("text", ["lan", "10.0.0.1/8", ""])
def test_egress_allow_that_names_no_network_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(CannotStart, match="egress_allow"):
        load_settings({"egress_allow": [text]}, {"HAWKER_DATA_DIR": str(tmp_path)})


def test_backups_are_not_sent_without_a_passphrase(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="backup_url needs backup_passphrase_file"):
        load_settings({"backup_url": str(tmp_path)}, {})
    flags = {"backup_url": str(tmp_path), "backup_passphrase_file": str(tmp_path / "passphrase")}
    assert load_settings(flags, {}).backup_passphrase_file == tmp_path / "passphrase"


def test_a_data_directory_behind_a_link_is_the_directory_itself(tmp_path: Path) -> None:
    """The kernel's table of mounts knows no links: what is compared with it must not, either."""
    (tmp_path / "disk/node").mkdir(parents=True)
    (tmp_path / "link").symlink_to("disk")
    assert load_settings({"data_dir": str(tmp_path / "link/node")}, {}).data_dir == tmp_path / "disk/node"
    assert load_settings({}, {"HAWKER_DATA_DIR": str(tmp_path / "link/new")}).data_dir == tmp_path / "disk/new"


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        ({"backup_every_s": 86_400}, "backup_every_s needs backup_url"),
        ({"backup_every_s": 60, "backup_url": "place"}, "0 or at least 600"),
        ({"backup_window": "1-5"}, "two times of a day"),
        ({"backup_verify_percent": 101}, "at most 100"),
        ({"backup_verify_percent": -1}, "at least 0"),
        ({"backup_window": "01:00-24:00"}, "two times of a day"),
    ],
)
def test_a_schedule_of_backups_that_cannot_be_is_refused(flags: dict[str, object], match: str) -> None:
    with pytest.raises(CannotStart, match=match):
        load_settings({"backup_passphrase_file": "passphrase", **flags}, {})


def test_a_schedule_of_backups_is_read() -> None:
    flags = {"backup_url": "place", "backup_passphrase_file": "passphrase", "backup_window": "23:30-05:00"}
    settings = load_settings({**flags, "backup_every_s": 86_400}, {})
    assert (settings.backup_every_s, settings.backup_window) == (86_400.0, "23:30-05:00")
    assert (settings.backup_keep_daily, settings.backup_keep_weekly) == (7, 4)


@pytest.mark.parametrize(
    ("name", "zone", "wanted"),
    [
        ("api.example.com", (), ("api.example.com",)),
        ("api.example.com", ("192.0.2.5:53",), ("*.apps.example.com", "api.example.com")),
        ("api.apps.example.com", ("192.0.2.5:53",), ("*.apps.example.com",)),
        ("api.apps.example.com", (), ("api.apps.example.com",)),
        (None, ("192.0.2.5:53",), ("*.apps.example.com",)),
        (None, (), ()),
    ],
)
def test_a_certificate_is_ordered_for_each_name_of_the_platform_that_no_wildcard_covers(
    name: str | None, zone: tuple[str, ...], wanted: tuple[str, ...]
) -> None:
    flags = {**CA, "api_hostname": name, "domain": "apps.example.com", "dns_zone_listen": zone}
    assert load_settings(flags, {}).own_hostnames == wanted
