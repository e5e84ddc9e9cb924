"""Facts about finding credentials."""

import base64
import json
from pathlib import Path

import pytest

from hawker.errors import Unavailable
from hawker.image.credentials import Credentials, find_credentials
from hawker.log import Secret


def auth_file(folder: Path, **auths: dict[str, str]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({"auths": auths, "credsStore": "ignored"}))
    return path


def packed(text: str) -> dict[str, str]:
    return {"auth": base64.b64encode(text.encode()).decode()}


def revealed(found: Credentials | None) -> tuple[str, str] | None:
    return (found.username, found.password.reveal()) if found else None


@pytest.mark.parametrize(
    ("key", "registry"),
    [
        ("registry.example:5000", "registry.example:5000"),
        ("https://registry.example", "registry.example"),
        ("https://index.docker.io/v1/", "docker.io"),
        ("docker.io", "docker.io"),
    ],
)
def test_entry_is_found_under_its_usual_names(tmp_path: Path, key: str, registry: str) -> None:
    file = auth_file(tmp_path, **{key: packed("alice:a:b")})
    assert revealed(find_credentials(file, registry)) == ("alice", "a:b")


def test_plain_user_and_password_are_read(tmp_path: Path) -> None:
    file = auth_file(tmp_path, host={"username": "bob", "password": "x"})
    assert revealed(find_credentials(file, "host")) == ("bob", "x")


@pytest.mark.parametrize("entry", [{}, {"auth": "%%%"}, packed("nocolon"), {"auth": "/w=="}])
def test_entry_without_a_password_is_none(tmp_path: Path, entry: dict[str, str]) -> None:
    assert find_credentials(auth_file(tmp_path, host=entry), "host") is None


def test_other_hosts_get_nothing(tmp_path: Path) -> None:
    file = auth_file(tmp_path, **{"host.example": packed("a:b")})
    assert find_credentials(file, "example") is None
    assert find_credentials(file, "evil-host.example") is None
    assert find_credentials(tmp_path / "nope", "host.example") is None
    assert find_credentials(None, "host.example") is None


def test_unreadable_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(Unavailable, match=r"the registry credentials in .*config.json cannot be read"):
        find_credentials(tmp_path / "config.json", "host")


def test_password_is_not_shown() -> None:
    credentials = Credentials("alice", Secret("hidden"))
    assert "hidden" not in repr(credentials)
    assert credentials.basic() == "Basic " + base64.b64encode(b"alice:hidden").decode()
