"""Facts about the errors of images."""

import errno

import pytest

from hawker.errors import BadRequest, NoRoom
from hawker.ids import Digest
from hawker.image.failure import BadLayer, disk_room, manifest_failure, no_room


def test_bad_layer_names_layer_and_entry() -> None:
    error = BadLayer(Digest("sha256:abc"), "a name that leads upwards with ..", "../etc/passwd")
    assert str(error) == "layer sha256:abc: a name that leads upwards with .. (entry '../etc/passwd')"
    assert isinstance(error, BadRequest)
    assert str(BadLayer(Digest("sha256:abc"), "cut off")) == "layer sha256:abc: cut off"


def test_manifest_failure_has_the_text_that_clients_match() -> None:
    text = str(manifest_failure("host/app:v1", "MANIFEST_UNKNOWN", "manifest unknown"))
    assert text == "failed to get manifest host/app:v1: MANIFEST_UNKNOWN: manifest unknown"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_is_no_room(code: int) -> None:
    with pytest.raises(NoRoom, match="no space left on this node's disk while testing") as caught, disk_room("testing"):
        raise OSError(code, "full")
    assert (caught.value.scope, caught.value.shortfall) == ("host", {"disk_mb": 1})


def test_other_errors_of_the_disk_pass() -> None:
    with pytest.raises(PermissionError), disk_room("testing"):
        raise PermissionError(errno.EACCES, "no")


def test_shortfall_is_in_megabytes() -> None:
    assert no_room("testing", 5 << 20).shortfall == {"disk_mb": 5}
