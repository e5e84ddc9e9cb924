"""Facts about which names lead to which image."""

from pathlib import Path

import pytest

from hawker.ids import Digest
from hawker.image.naming import Naming
from hawker.image.reference import parse
from hawker.image.resolve import Resolved, named
from hawker.image.shelf import Shelf
from tests.image.test_shelf import image, opened

pytestmark = pytest.mark.anyio

_A, _B = (Digest(f"sha256:{letter * 64}") for letter in "ab")


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return opened(tmp_path)


def resolved(text: str, digest: Digest = _A, *, imported: bool = False) -> Resolved:
    return named(parse(text), digest, 1, imported=imported)


async def test_name_counts_once_its_image_is_complete(shelf: Shelf) -> None:
    naming = Naming(shelf)
    await naming.resolved(resolved("app:v1"))
    assert naming.lookup(parse("app:v1")) is None
    await shelf.put_image(image(_A))
    await naming.complete(resolved(f"docker.io/library/app@{_A}"))
    assert naming.lookup(parse("app:v1")) == _A
    assert shelf.names_of(_A) == ("docker.io/library/app:v1",)


async def test_old_meaning_holds_while_the_new_image_is_on_its_way(shelf: Shelf) -> None:
    naming = Naming(shelf)
    await shelf.put_image(image(_A))
    await naming.resolved(resolved("app:v1", _A))
    await naming.resolved(resolved("app:v1", _B))
    assert naming.lookup(parse("app:v1")) == _A
    await shelf.put_image(image(_B))
    await naming.complete(resolved("app:v1", _B))
    assert naming.lookup(parse("app:v1")) == _B


async def test_image_goes_by_what_users_wrote(shelf: Shelf) -> None:
    naming = Naming(shelf)
    pinned = resolved(f"app@{_A}")
    assert naming.best(pinned) == pinned
    await naming.resolved(resolved("app:v1"))
    assert naming.best(pinned) == resolved("app:v1")


async def test_bare_digest_is_a_name_only_without_a_better_one(shelf: Shelf) -> None:
    naming = Naming(shelf)
    await shelf.put_image(image(_A))
    await naming.complete(resolved(f"app@{_A}"))
    assert shelf.names_of(_A) == (f"docker.io/library/app@{_A}",)
    await naming.complete(resolved("app:v1"))
    await naming.complete(resolved(f"other@{_A}"))
    assert shelf.names_of(_A) == ("docker.io/library/app:v1", f"docker.io/library/app@{_A}")


def test_digest_leads_to_itself(shelf: Shelf) -> None:
    naming = Naming(shelf)
    assert naming.lookup(parse(_A)) == _A
    assert naming.lookup(parse(f"app@{_A}")) == _A
    assert naming.lookup(parse("hawker/hello")) is None


async def test_imported_names_are_known(shelf: Shelf) -> None:
    naming = Naming(shelf)
    await shelf.put_image(image(_A))
    await naming.complete(resolved("app:v1", imported=True))
    assert naming.is_imported(parse("app:v1"))
    assert not naming.is_imported(parse("app:v2"))


async def test_names_that_never_come_are_forgotten(shelf: Shelf) -> None:
    naming = Naming(shelf)
    for number in range(1100):
        await naming.resolved(resolved("app:v1", Digest(f"sha256:{number:064}")))
    first, last = (resolved("x:y", Digest(f"sha256:{number:064}")) for number in (0, 1099))
    assert naming.best(first) == first
    pinned = resolved(f"app@{last.digest}", last.digest)
    assert naming.best(pinned).reference == "docker.io/library/app:v1"
