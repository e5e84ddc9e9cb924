"""Each rule of grain finds what it is for, and nothing else."""

from tests.tidy import grain
from tests.tidy.test_imports import lines

LONG = "\n".join(f"x{number} = {number}" for number in range(80))


def test_small_module_with_one_importer_beside_it_is_found() -> None:
    assert lines(grain.floor, store__part="x = 1", store__whole="from hawker.store import part") == [
        "hawker.store.part"
    ]


def test_small_module_with_two_importers_is_left() -> None:
    two = {"store__one": "from hawker.store import part", "store__two": "from hawker.store import part"}
    assert lines(grain.floor, store__part="x = 1", **two) == []


def test_large_module_is_left() -> None:
    assert lines(grain.floor, store__part=LONG, store__whole="from hawker.store import part") == []


def test_importer_in_another_folder_is_no_reason() -> None:
    assert lines(grain.floor, store__part="x = 1", worker__whole="from hawker.store import part") == []


def test_class_name_that_stands_twice_is_found() -> None:
    assert lines(grain.one_class_a_name, store__a="class Plan: ...", fsm__b="class Plan: ...") == ["Plan"]
    assert lines(grain.one_class_a_name, store__a="class _Plan: ...", fsm__b="class _Plan: ...") == []


def test_module_name_that_stands_four_times_is_found() -> None:
    four = {f"{room}__plan": "x = 1" for room in ("store", "fsm", "image", "host")}
    assert lines(grain.telling_stems, **four) == ["plan"]
    three = dict(list(four.items())[:3])
    assert lines(grain.telling_stems, **three) == []
