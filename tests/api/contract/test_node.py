"""Regions as they are shown."""

from hawker.api.contract.node import region_list, region_of


def test_a_known_code_is_on_the_map() -> None:
    assert (region_of("ams").name, region_of("ams").geo_region) == ("Amsterdam, Netherlands", "europe")


def test_any_other_code_is_nowhere() -> None:
    assert (region_of("cellar").name, region_of("cellar").latitude, region_of("cellar").geo_region) == ("cellar", 0, "")


def test_a_list_has_each_region_once_in_both_spellings() -> None:
    shown = region_list(["mad", "ams", "mad"], "mad")
    assert [region.code for region in shown.regions] == ["ams", "mad"]
    assert (shown.regions, shown.nearest) == (shown.Regions, shown.Nearest)
