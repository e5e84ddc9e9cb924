import errno
from pathlib import Path

import pytest

from hawker.errors import CannotStart, Fault, Unavailable
from hawker.up.boot_refusal import or_refuse, wrapped_in

PLACE = Path("/srv/node")


def refused(error: Exception) -> str:
    with pytest.raises(CannotStart) as refusal, or_refuse(PLACE):
        raise error
    return str(refusal.value)


@pytest.mark.parametrize(
    ("error", "to_do"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/srv/node/token"), "free some space"),
        (OSError(errno.EROFS, "Read-only file system", "/srv/node/token"), "make it writable"),
        (OSError(errno.EACCES, "Permission denied", "/srv/node/token"), "make it this user's own"),
        (OSError(errno.EIO, "Input/output error", "/srv/node/token"), "see to it"),
    ],
)
def test_a_refusal_of_the_disk_is_one_line_with_a_next_step(error: OSError, to_do: str) -> None:
    text = refused(error)
    assert text.startswith("the node cannot begin on /srv/node: ") and "/srv/node/token" in text and to_do in text
    assert "\n" not in text


@pytest.mark.parametrize("error", [Unavailable("the store is full"), Fault("a record is damaged")])
def test_a_refusal_of_the_store_says_so_itself(error: Exception) -> None:
    assert refused(error) == f"the node cannot begin on /srv/node: {error}"


def test_a_refusal_stays_as_it_is() -> None:
    assert refused(CannotStart("another hawker is here")) == "another hawker is here"


def test_a_task_group_does_not_hide_the_reason() -> None:
    wrapped = ExceptionGroup("tasks", [ExceptionGroup("more", [Unavailable("the store is full")])])
    assert refused(wrapped).endswith("the store is full")


@pytest.mark.parametrize("error", [KeyError("x"), ExceptionGroup("tasks", [OSError("x"), KeyError("x")])])
def test_a_mistake_of_ours_is_no_refusal(error: Exception) -> None:
    with pytest.raises(type(error)), or_refuse(PLACE):
        raise error


def test_a_refusal_is_found_in_the_group_that_ends_the_daemon() -> None:
    refusal = CannotStart("no")
    assert wrapped_in(BaseExceptionGroup("tasks", [BaseExceptionGroup("more", [refusal])])) is refusal
    assert wrapped_in(BaseExceptionGroup("tasks", [refusal, KeyError("x")])) is None
    assert wrapped_in(BaseExceptionGroup("tasks", [Unavailable("later")])) is None
