from hawker.fair import table
from hawker.fair.table import ELSEWHERE, SHARES, copies, pulls
from hawker.fair.turns import Share


def test_every_share_is_in_the_table_once() -> None:
    made = {value.name for value in vars(table).values() if isinstance(value, Share)}
    names = [share.name for share in SHARES]
    assert made <= set(names) and len(names) == len(set(names))
    assert {"disk", "descriptors", "loop time", "connection tracking"} <= {row.name for row in ELSEWHERE}


def test_no_key_can_have_all_of_what_many_want() -> None:
    whole = [share.name for share in SHARES if share.each >= share.total]
    assert whole == []


def test_organization_pulls_as_many_images_as_the_setting_says_and_others_too() -> None:
    assert (pulls(3).each, pulls(1).each) == (3, 1)
    assert pulls(1).total > 1 and copies(2).each == 2
