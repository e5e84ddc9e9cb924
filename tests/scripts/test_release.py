import hashlib
from pathlib import Path

import pytest

from scripts.release import REQUIREMENTS, ROOT, SUMS, Pin, bill_of_materials, checksums, pins

_TEXT = f"""# made by lock.sh
aiohttp[speedups]==3.9.1 ; python_version >= "3.11" \\
    --hash=sha256:{"a" * 64} \\
    --hash=sha256:{"b" * 64}
    # via hawker
Click==8.1.7 \\
    --hash=sha256:{"c" * 64}
"""


def test_pins_have_their_versions_and_the_hashes_of_all_files() -> None:
    assert list(pins(_TEXT)) == [Pin("aiohttp", "3.9.1", ("a" * 64, "b" * 64)), Pin("Click", "8.1.7", ("c" * 64,))]


def test_a_pin_without_a_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="click has no hash"):
        list(pins("click==8.1.7\n"))


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_everything_that_is_installed_or_built_with_is_pinned(name: str) -> None:
    text = (ROOT / name).read_text()
    assert len(list(pins(text))) == sum("==" in line for line in text.splitlines() if not line.startswith((" ", "#")))


def test_the_bill_of_materials_names_each_pin_and_is_the_same_again() -> None:
    made = bill_of_materials("0.1.0", list(pins(_TEXT)), 1_700_000_000)
    assert made == bill_of_materials("0.1.0", list(pins(_TEXT)), 1_700_000_000)
    assert [each["purl"] for each in made["components"]] == ["pkg:pypi/aiohttp@3.9.1", "pkg:pypi/click@8.1.7"]
    assert made["dependencies"][0]["dependsOn"] == [each["bom-ref"] for each in made["components"]]
    assert (made["bomFormat"], made["metadata"]["timestamp"]) == ("CycloneDX", "2023-11-14T22:13:20+00:00")


def test_checksums_are_of_every_file_but_their_own(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"two")
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / SUMS).write_text("old")
    one = hashlib.sha256(b"one").hexdigest()
    assert checksums(tmp_path).splitlines()[0] == f"{one}  a" and len(checksums(tmp_path).splitlines()) == 2
