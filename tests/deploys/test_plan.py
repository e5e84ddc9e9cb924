"""What a file and the machines that are there become. Pure."""

import pytest

from hawker.deploys.plan import budget, limits_of, warnings_of
from hawker.flytoml.reader import read_app_config
from hawker.record.deploy import DeployLimits


@pytest.mark.parametrize(
    ("limit", "warm", "at_once"),
    [(0.33, 1, 1), (0.33, 10, 4), (0.33, 100, 33), (1, 10, 1), (3, 10, 3), (30, 10, 10), (0.01, 10, 1), (0.5, 0, 1)],
)
def test_a_budget_is_a_count_or_a_share_rounded_up_and_at_least_one(limit: float, warm: int, at_once: int) -> None:
    assert budget(limit, warm) == at_once


def limits(text: str) -> DeployLimits:
    config = read_app_config(text, ".toml").config
    assert config is not None
    return limits_of(config)


def test_a_file_that_says_nothing_gets_the_usual_limits() -> None:
    assert limits("") == DeployLimits()


def test_limits_are_what_the_file_says() -> None:
    text = """
[deploy]
max_unavailable = 2
wait_timeout = "2m"
[hawker.deploy]
smoke = "1s"
smoke_rest = "0s"
rollback = false
unreachable = "fail"
"""
    assert limits(text) == DeployLimits(
        max_unavailable=2, wait_s=120, smoke_s=1, smoke_rest_s=0, rollback=False, skip_unreachable=False
    )


def test_our_own_word_on_rollback_wins_over_the_experimental_one() -> None:
    experimental = "[experimental]\nauto_rollback = false\n"
    assert not limits(experimental).rollback
    assert limits(experimental + "[hawker.deploy]\nrollback = true\n").rollback


def test_an_immediate_deploy_is_taken_back_only_where_the_file_says_so() -> None:
    config = read_app_config("", ".toml").config
    asked = read_app_config("[hawker.deploy]\nrollback = true\n", ".toml").config
    assert config is not None and asked is not None
    assert not limits_of(config, "immediate").rollback and limits_of(asked, "immediate").rollback


def test_what_has_no_effect_is_said() -> None:
    config = read_app_config('[hawker.deploy]\nwaves = [["ord"]]\nbake = "30s"\n', ".toml").config
    assert config is not None
    assert [each.split(":")[0] for each in warnings_of(config)] == ["hawker.deploy.waves", "hawker.deploy.bake"]
