"""Facts about digests."""

import pytest

from hawker.image.digest import digest_of, hex_of, is_digest, parse_digest
from hawker.image.failure import BadImage


def test_digest_of_content_is_its_sha256() -> None:
    empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest_of(b"") == empty
    assert hex_of(digest_of(b"")) == empty[7:]
    assert parse_digest(empty) == empty


@pytest.mark.parametrize(
    "text", ["", "sha256:", "sha256:" + "0" * 63, "sha256:" + "A" * 64, "sha512:" + "0" * 128, "sha256:../" + "0" * 61]
)
def test_other_forms_are_refused(text: str) -> None:
    assert not is_digest(text)
    with pytest.raises(BadImage, match="is not sha256: and 64 lowercase hex characters"):
        parse_digest(text)


def test_newline_at_the_end_is_refused() -> None:
    assert not is_digest(digest_of(b"") + "\n")
