import pytest

from hawker.errors import CannotStart
from hawker.fleet.labels import MAX_LABELS, labels_of


def test_labels_are_pairs() -> None:
    assert labels_of(("disk=ssd", "example.com/rack=a=1", "gpu=")) == {
        "disk": "ssd",
        "example.com/rack": "a=1",
        "gpu": "",
    }


@pytest.mark.parametrize(
    "text", ["", "disk", "=ssd", "a b=c", "disk=a,b", "disk=\n", f"disk={'x' * 257}", f"{'k' * 65}=v"]
)
def test_what_is_no_label_is_refused(text: str) -> None:
    with pytest.raises(CannotStart, match="is not KEY=VALUE, such as disk=ssd"):
        labels_of((text,))


def test_a_label_is_given_once_and_there_are_not_many() -> None:
    with pytest.raises(CannotStart, match="label disk is given twice"):
        labels_of(("disk=a", "disk=b"))
    with pytest.raises(CannotStart, match="at most 64 labels, not 65"):
        labels_of(f"l{number}=" for number in range(MAX_LABELS + 1))
