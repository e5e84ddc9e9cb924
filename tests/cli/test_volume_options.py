import pytest

from hawker.cli.volume_options import SizeAsked, size_gib, whole_gib


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("10", SizeAsked(10)),
        ("10g", SizeAsked(10)),
        ("10 GiB", SizeAsked(10)),
        ("+5", SizeAsked(5, more=True)),
        ("+5gb", SizeAsked(5, more=True)),
    ],
)
def test_sizes_are_written_as_people_write_them(text: str, asked: SizeAsked) -> None:
    assert size_gib(text) == asked


@pytest.mark.parametrize("text", ["", "0", "+0", "-1", "1.5", "ten", "10m", "9" * 20])
def test_a_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="size in GiB"):
        size_gib(text)


def test_a_new_volume_cannot_be_larger_by_something() -> None:
    assert whole_gib("3") == 3
    with pytest.raises(ValueError, match="needs a size, not an increase"):
        whole_gib("+3")
