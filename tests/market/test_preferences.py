from pathlib import Path

import pytest

from hawker.errors import CannotStart
from hawker.market.preferences import RESOURCES, Limits, load_preferences, preferences


def _loaded(tmp_path: Path, text: str) -> object:
    file = tmp_path / "market.toml"
    file.write_text(text)
    return load_preferences(file)


def test_without_a_file_there_is_a_curve_and_a_weight_for_each_resource() -> None:
    usual = load_preferences(None)
    assert set(usual.curves) == set(usual.weights) == set(RESOURCES)


def test_what_the_file_says_replaces_that_and_nothing_else(tmp_path: Path) -> None:
    text = "[curves]\ncpu = [[0.0, 0.0], [1.0, 1.0]]\n[weights]\nimage = 3\n[limits]\nbid_deadline_s = 0.25\n"
    found = _loaded(tmp_path, text)
    usual = preferences()
    assert found == preferences({"cpu": ((0.0, 0.0), (1.0, 1.0))}, {"image": 3.0}, Limits(bid_deadline_s=0.25))
    assert found != usual and usual.curves["memory"] == preferences({"cpu": ((0.0, 0.0),)}).curves["memory"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[curves]\ncpus = [[0.0, 1.0]]", "curves.cpus is not known: there are cpu, memory"),
        ("[curves]\ncpu = [[0.5, 1.0], [0.25, 0.0]]", r"curves.cpu\[1\]: values must grow"),
        ("[curves]\ncpu = [[2.0, 1.0]]", r"curves.cpu\[0\]: the value 2"),
        ("[curves]\ncpu = 3", r"curves\[...\]"),
        ("[weights]\ncpu = -1", "weights.cpu must be between 0 and 1000"),
        ("[weights]\nspread = 'x'", "float"),
        ("[weights]\ncpu = 0\nmemory = 0\ndisk = 0", "one of cpu, memory and disk must be above 0"),
        ("[limits]\nbid_deadline_s = 0", "bid_deadline_s must be between"),
        ("[limits]\nhaste = 1", "haste"),
        ("colour = 1", "colour"),
        ("[curves", "cannot read"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_key(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(CannotStart, match=named) as refused:
        _loaded(tmp_path, text)
    assert "market.toml" in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"nothing.toml"):
        load_preferences(tmp_path / "nothing.toml")
