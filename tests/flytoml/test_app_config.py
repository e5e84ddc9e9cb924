"""The process groups of an app."""

from hawker.flytoml.app_config import AppConfig


def test_an_app_without_groups_has_the_one_called_app() -> None:
    assert AppConfig().groups == ("app",) and AppConfig(processes={}).groups == ("app",)


def test_groups_are_in_the_files_order() -> None:
    assert AppConfig(processes={"web": ("a",), "cron": ("b",)}).groups == ("web", "cron")
