import re

import pytest

from tests.tidy import text
from tests.tidy.rules import Rule
from tests.tidy.tree import ROOT, tree_of

# The words are put together here, so that this file keeps the rules too.


def found(rule: Rule, line: str, path: str = "docs/guide.md") -> list[str]:
    return [f"{finding.line} {finding.subject}" for finding in rule(tree_of({path: f"first\n{line}\n"}))]


@pytest.mark.parametrize("mark", ["TO" + "DO", "FIX" + "ME", "X" * 3])
def test_unfinished_work_is_found(mark: str) -> None:
    assert found(text.finished, f"# {mark}: later") == [f"2 {mark}"]
    assert found(text.finished, "mktemp /tmp/" + "X" * 6) == []


@pytest.mark.parametrize("place", ["/home/" + "alice", "/builds/" + "carol", "/Users/" + "bob"])
def test_a_path_of_one_machine_is_found(place: str) -> None:
    assert found(text.no_places, f"cd {place}/hawker") == [f"2 {place}"]


@pytest.mark.parametrize("line", ["overlay/work/upper", "GET /v1/home", "/workers/x", "the network/home-use"])
def test_a_path_that_is_no_place_is_not_found(line: str) -> None:
    assert found(text.no_places, line) == []


@pytest.mark.parametrize("host", ["pypi" + ".org", "files.pythonhosted" + ".org", "deb.debian" + ".org"])
def test_a_package_registry_is_found(host: str) -> None:
    assert len(found(text.no_registries, f"--index-url https://{host}/x", ".ci/run")) == 1


def test_an_image_registry_is_not_a_package_registry() -> None:
    assert found(text.no_registries, "registry-1.docker.io/library/debian:12") == []


@pytest.mark.parametrize("target", ["other.md#no-such", "../gone.md", "#no-such", "pictures/gone.svg"])
def test_a_link_that_leads_nowhere_is_found(target: str) -> None:
    tree = tree_of({"docs/page.md": f"see [it]({target})\n", "docs/other.md": "# Its heading\n", "src/x/y.py": ""})
    assert [(finding.line, finding.subject) for finding in text.links(tree)] == [(1, target)]


@pytest.mark.parametrize(
    "target", ["other.md", "other.md#its-heading", "../src/x/", "#one-of-ours", "https://example.com/x"]
)
def test_a_link_to_a_file_a_folder_or_a_heading_is_right(target: str) -> None:
    page = f"# One of `ours`!\n[it]({target})\n```\n[none](gone.md)\n```\n"
    tree = tree_of({"docs/page.md": page, "docs/other.md": "# Its heading\n", "src/x/y.py": ""})
    assert list(text.links(tree)) == []


def test_page_of_how_to_add_names_files_that_are_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text().split("## How to add", 1)[1].split("\n## ", 1)[0]
    files = [name for name in re.findall(r"`([\w/*]+(?:\.\w+|/))`", page) if "/" in name and "/a/" not in name]
    assert len(files) >= 12
    missing = [name for name in files if not any(list(top.glob(name)) for top in (ROOT, ROOT / "src/hawker"))]
    assert missing == []
