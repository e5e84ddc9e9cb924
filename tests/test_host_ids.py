import pytest

from hawker.host_ids import IDS_EACH, id_bounds, service_users


@pytest.mark.parametrize("text", ["", "5", "1-2", "0-70000", "1073741824-1073741900", "65536-4294967295", "a-b"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="userns_ids"):
        id_bounds(text)


def test_services_have_the_last_ids_of_the_range() -> None:
    users, (first, last) = service_users("1073741824-1879048191"), id_bounds("1073741824-1879048191")
    assert len(set(users)) == 2 and all(first + IDS_EACH < user <= last for user in users)
