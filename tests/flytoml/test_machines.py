"""One machine config for each process group. What each section becomes stands in `golden/`."""

import pytest

from hawker.config import File, Guest, MachineConfig
from hawker.config.effective import Persist, persistence
from hawker.config.machine import (
    Container,
    Init,
    MachineCheck,
    Mount,
    Part,
    RootfsConfig,
    Service,
)
from hawker.flytoml.app_config import AppConfig
from hawker.flytoml.machines import KEPT, clamped, machine_configs, of_group, overlaid, usual_port
from hawker.flytoml.reader import read_app_config


def app(text: str) -> AppConfig:
    config = read_app_config(text, ".toml").config
    assert config is not None
    return config


def machine(text: str, group: str = "app") -> MachineConfig:
    return machine_configs(app(text))[group]


GROUPS = "[processes]\nweb = 'w'\ncron = 'c'\n"


def test_a_section_without_processes_is_for_the_default_group() -> None:
    text = GROUPS + "[[files]]\nguest_path = '/a'\nraw_value = 'eA=='\n[[vm]]\nmemory = 512\n"
    machines = machine_configs(app(text))
    assert machines["cron"].files and machines["web"].files is None
    assert all(each.guest is not None and each.guest.memory_mb == 512 for each in machines.values())


def test_the_group_called_app_is_the_default_one() -> None:
    config = app("[processes]\napp = 'a'\nabc = 'b'\n[[metrics]]\nport = 1\n")
    assert [of_group(each, "app", config) for each in config.metrics or ()] == [True]


def test_an_image_that_is_given_wins() -> None:
    config = app("[build]\nimage = 'a:1'")
    assert machine_configs(config)["app"].image == "a:1" and machine_configs(config, "b:2")["app"].image == "b:2"


def test_a_local_file_becomes_its_content() -> None:
    config = app("[[files]]\nguest_path = '/a'\nlocal_path = 'b'\n")
    assert machine_configs(config, local={"b": b"hi"})["app"].files == (File(guest_path="/a", raw_value="aGk="),)


@pytest.mark.parametrize("source", ["local_path = ''", "secret_name = ''"])
def test_a_file_without_a_source_leaves_the_images_own_alone(source: str) -> None:
    assert machine(f"[[files]]\nguest_path = '/etc/motd'\n{source}\n").files is None
    empty = machine("[[files]]\nguest_path = '/etc/motd'\nraw_value = ''\n").files
    assert empty == (File(guest_path="/etc/motd", raw_value=""),)


def test_the_region_and_the_group_win_over_env() -> None:
    text = "primary_region = 'ams'\n[env]\nPRIMARY_REGION = 'x'\nFLY_PROCESS_GROUP = 'y'\n"
    assert machine(text).env == {"PRIMARY_REGION": "ams", "FLY_PROCESS_GROUP": "app"}


def test_a_check_takes_the_port_of_its_groups_http_service() -> None:
    text = GROUPS + "[http_service]\ninternal_port = 80\nprocesses = ['web']\n"
    assert usual_port(app(text), "web") == 80 and usual_port(app(text), "cron") is None
    checked = machine(text + "[checks.up]\ntype = 'tcp'\nprocesses = ['web']\n", "web").checks
    assert checked is not None and checked["up"].port == 80


def test_a_services_check_has_one_second_to_one_minute() -> None:
    assert [clamped(each) for each in (None, "10ms", "10s", "2m")] == [None, "1s", "10s", "1m0s"]


SAID: dict[type[Part], set[str]] = {
    MachineConfig: {"image", "env", "init", "guest", "size", "metadata", "files", "checks", "restart", "stop_config"}
    | {"services", "mounts", "metrics", "statics"},
    Init: {"exec", "entrypoint", "cmd", "swap_size_mb"},
    Guest: {"cpu_kind", "cpus", "memory_mb", "gpu_kind", "gpus", "kernel_args"},
    Mount: {"name", "path", "extend_threshold_percent", "add_size_gb", "size_gb_limit"},
    MachineCheck: {"type", "port", "interval", "timeout", "grace_period", "method", "path", "protocol", "headers"}
    | {"tls_skip_verify", "tls_server_name"},
    Service: {"protocol", "internal_port", "ports", "concurrency", "autostart", "autostop", "min_machines_running"}
    | {"checks"},
    File: {"guest_path", "raw_value", "secret_name", "mode"},
}
"""What a file decides, whether it says it or not."""


@pytest.mark.parametrize("part", SAID)
def test_every_field_is_either_the_files_or_the_machines(part: type[Part]) -> None:
    """Whoever adds a field to a config says here, or in `KEPT`, what a deploy makes of it."""
    assert not KEPT[part] & SAID[part] and KEPT[part] | SAID[part] == set(part.__struct_fields__)


def over(text: str, old: MachineConfig) -> MachineConfig:
    return overlaid(machine(text), old)


def test_a_root_filesystem_that_outlives_instances_stays_so() -> None:
    kept = over("[[vm]]\nmemory = 512\n", MachineConfig(rootfs=RootfsConfig(persist="always", size_gb=3)))
    assert kept.rootfs == RootfsConfig(persist="always", size_gb=3)
    older = over("[[vm]]\nmemory = 512\n", MachineConfig(guest=Guest(cpus=4, persist_rootfs="always")))
    assert persistence(older) is Persist.ALWAYS
    assert older.guest is not None and (older.guest.cpus, older.guest.memory_mb) == (1, 512)


def test_a_field_that_no_file_says_stays_at_every_level() -> None:
    old = MachineConfig(
        init=Init(tty=True, cmd=("old",)),
        containers=(Container(name="a"),),
        disable_machine_autostart=True,
        schedule="daily",
        checks={"up": MachineCheck(type="tcp", port=1, kind="informational"), "gone": MachineCheck(type="tcp", port=2)},
        services=(Service(internal_port=80, force_instance_key="k", min_machines_running=3),),
        mounts=(Mount(volume="vol_1", name="data", path="/old", size_gb=3),),
        files=(File(guest_path="/up", digest="sha256:a", size=1), File(guest_path="/old", raw_value="eA==")),
        metadata={"mine": "1", "fly_process_group": "app"},
    )
    text = """
[http_service]
internal_port = 80
[checks.up]
type = "tcp"
port = 9
[[mounts]]
source = "data"
destination = "/new"
"""
    kept = over(text, old)
    assert kept.init == Init(tty=True)
    assert kept.containers == old.containers and kept.disable_machine_autostart and kept.schedule == "daily"
    assert kept.checks == {"up": MachineCheck(type="tcp", port=9, kind="informational")}
    assert kept.services is not None and kept.services[0].force_instance_key == "k"
    assert kept.services[0].min_machines_running is None
    assert kept.mounts == (Mount(volume="vol_1", name="data", path="/new", size_gb=3),)
    assert kept.files == (File(guest_path="/up", digest="sha256:a", size=1),)
    assert kept.metadata == {"mine": "1", "fly_process_group": "app", "fly_platform_version": "v2"}


def test_a_size_of_the_file_wins_over_the_machines_own() -> None:
    old = MachineConfig(size="performance-2x", guest=Guest(cpus=2, memory_mb=4096, max_memory_mb=8192))
    assert over("", old).guest == old.guest and over("", old).size == "performance-2x"
    sized = over("[[vm]]\nmemory = 512\n", old)
    assert sized.size is None
    assert sized.guest == Guest(cpu_kind="shared", cpus=1, memory_mb=512, max_memory_mb=8192)
    larger = over("[[vm]]\nmemory = '16gb'\n", old).guest
    assert larger is not None and larger.max_memory_mb is None


def test_memory_in_megabytes_wins_over_memory_as_flys_own_launch_writes_both() -> None:
    written = "[[vm]]\nmemory = '1gb'\ncpu_kind = 'shared'\ncpus = 1\nmemory_mb = 2048\npersist_rootfs = 'always'\n"
    assert machine(written).guest == Guest(cpu_kind="shared", cpus=1, memory_mb=2048, persist_rootfs="always")
    assert machine("[[vm]]\nmemory_mb = 0\nmemory = '1gb'\n").guest == Guest(cpu_kind="shared", cpus=1, memory_mb=1024)
    numbered = machine("[[vm]]\nmax_memory_mb = 512\npersist_rootfs = 3\n")
    assert persistence(numbered) is Persist.ALWAYS and numbered.guest and numbered.guest.max_memory_mb == 512


def test_a_word_of_the_file_on_the_root_filesystem_wins_over_the_machines_own() -> None:
    kept = over("[[vm]]\npersist_rootfs = 'never'\n", MachineConfig(rootfs=RootfsConfig(persist="always", size_gb=3)))
    assert persistence(kept) is Persist.NEVER and kept.rootfs == RootfsConfig(size_gb=3)
