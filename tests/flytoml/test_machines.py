"""One machine config for each process group. What each section becomes stands in `golden/`."""

from hawker.config import File, MachineConfig
from hawker.flytoml.app_config import AppConfig
from hawker.flytoml.machines import clamped, machine_configs, of_group, usual_port
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
