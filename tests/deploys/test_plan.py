"""What a file and the machines that are there become. Pure."""

import pytest
from msgspec.structs import replace

from hawker.config.machine import MachineConfig, Static
from hawker.deploys.plan import WantedRelease, budget, heads_of, limits_of, warnings_of, waves_of
from hawker.flytoml.app_config import AppConfig
from hawker.flytoml.reader import read_app_config
from hawker.record.deploy import DeployLimits, SlotKind, SlotRecord, SlotState


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


def test_a_setting_without_effect_is_said() -> None:
    config = read_app_config('[hawker.deploy]\nsurge = true\nkeep_blue = "5m"\n', ".toml").config
    assert config is not None
    assert [each.split(":")[0] for each in warnings_of(config, {}, "rolling")] == ["hawker.deploy.keep_blue"]


def test_keep_blue_counts_for_the_strategy_of_the_deploy_and_not_of_the_file() -> None:
    config = read_app_config('[deploy]\nstrategy = "bluegreen"\n[hawker.deploy]\nkeep_blue = "5m"\n', ".toml").config
    assert config is not None
    assert not warnings_of(config, {}, "bluegreen") and warnings_of(config, {}, "rolling")


def test_a_field_that_machines_keep_without_effect_is_said_once_for_all_groups() -> None:
    each = MachineConfig(
        image="web:3", disable_machine_autostart=True, statics=(Static(guest_path="/s", url_prefix="/s"),)
    )
    assert warnings_of(AppConfig(), {"web": each, "job": each}, "rolling") == (
        "statics are kept and not served",
        "disable_machine_autostart is kept and without effect: the machine has no services",
    )


def slot(region: str) -> SlotRecord:
    return SlotRecord(number=0, kind=SlotKind.UPDATE, group="app", region=region, at=1.0)


def waves(text: str, *regions: str, strategy: str = "rolling") -> tuple[tuple[str, ...], ...]:
    config = read_app_config(text, ".toml").config
    assert config is not None
    wanted = WantedRelease(app="shop", version=1, config=config, configs={}, strategy=strategy, ha=True, now=1.0)
    return waves_of(wanted, [slot(region) for region in regions])


def test_the_smallest_region_goes_first_unless_it_is_the_primary_one() -> None:
    regions = ("ams", "lhr", "lhr", "mad", "mad", "mad")
    assert waves("", *regions) == (("ams",), ("lhr", "mad"))
    assert waves('primary_region = "ams"\n', *regions) == (("lhr",), ("ams", "mad"))


def test_waves_are_what_the_file_says_and_what_it_leaves_out_goes_last() -> None:
    text = '[hawker.deploy]\nwaves = [["mad", "nowhere"], ["lhr"]]\n'
    assert waves(text, "ams", "lhr", "mad") == (("mad",), ("lhr",), ("ams",))


def test_one_region_and_strategies_that_roll_nothing_have_no_waves() -> None:
    assert waves("", "mad", "mad") == () and waves("", "mad", "ams", strategy="bluegreen") == ()


def of(region: str, number: int, state: SlotState = SlotState.WAITING, launch: bool = True) -> SlotRecord:
    return replace(slot(region), number=number, state=state, launch=launch)


def test_the_first_machine_goes_alone_and_then_the_first_of_each_other_region() -> None:
    slots = [of("ams", 0, launch=False), of("ams", 1), of("ams", 2), of("lhr", 3), of("mad", 4), of("mad", 5)]
    assert [[each.number for each in heads] for heads in heads_of(slots, slots)] == [[1], [3, 4]]


def test_a_region_in_which_one_has_proven_itself_has_no_other_that_goes_alone() -> None:
    slots = [of("ams", 0, SlotState.DONE), of("ams", 1), of("lhr", 2), of("mad", 3, launch=False)]
    assert [[each.number for each in heads] for heads in heads_of(slots, slots[1:])] == [[2]]
    assert heads_of([], []) == [[], []]
