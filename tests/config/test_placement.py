import pytest

from hawker.config import MachineConfig
from hawker.config.placement import Placement, Spread, apart_from, lacking, parse_labels, placement_of
from hawker.errors import Unprocessable


def test_without_metadata_any_node_will_do() -> None:
    assert placement_of(MachineConfig(image="web")) == Placement(spread=Spread.SOFT)


def test_a_placement_reads_its_own_words() -> None:
    whole = Placement(labels={"zone": "a", "disk": "ssd"}, driver="crun", spread=Spread.HARD)
    assert placement_of(MachineConfig(image="web", metadata=whole.metadata())) == whole
    assert Placement().metadata() == {}


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"hawker_labels": "zone"}, "config.metadata.hawker_labels: 'zone' is not KEY=VALUE"),
        ({"hawker_labels": "=a"}, "config.metadata.hawker_labels"),
        ({"hawker_spread": "far"}, "config.metadata.hawker_spread: 'far' is not one of off, soft, hard"),
    ],
)
def test_a_placement_that_cannot_be_read_is_refused_with_its_key(metadata: dict[str, str], text: str) -> None:
    with pytest.raises(Unprocessable, match=text):
        placement_of(MachineConfig(image="web", metadata=metadata))


def test_a_label_is_there_only_with_its_value() -> None:
    there = parse_labels(" zone=a, disk=ssd ,")
    assert there == {"zone": "a", "disk": "ssd"}
    assert lacking({"zone": "a"}, there) is None
    assert lacking({"zone": "b"}, there) == "zone=b"
    assert lacking({"rack": ""}, there) == "rack="


def test_machines_to_be_apart_from_are_a_list_of_ids() -> None:
    assert apart_from(MachineConfig(image="web")) == ()
    assert apart_from(MachineConfig(image="web", metadata={"hawker_apart_from": "a, b,"})) == ("a", "b")
