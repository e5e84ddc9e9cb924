from pathlib import Path

import pytest

from hawker.archive.credentials import Keys, find_keys, find_region
from hawker.archive.failure import Refused

CREDENTIALS = """[default]
aws_access_key_id = one
aws_secret_access_key = first

[ci]
aws_access_key_id = two
aws_secret_access_key = 100%second
aws_session_token = token
"""
CONFIG = """[default]
region = eu-north-1
[profile ci]
region = sa-east-1
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(CREDENTIALS)
    (tmp_path / ".aws" / "config").write_text(CONFIG)
    return tmp_path


def test_variables_win(home: Path) -> None:
    environ = {"HOME": str(home), "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_REGION": "here"}
    assert find_keys(environ) == Keys("id", "key")
    assert find_keys({**environ, "AWS_SESSION_TOKEN": "t"}) == Keys("id", "key", "t")
    assert find_region(environ) == "here"


def test_then_the_default_profile(home: Path) -> None:
    assert find_keys({"HOME": str(home)}) == Keys("one", "first")
    assert find_region({"HOME": str(home)}) == "eu-north-1"


def test_a_profile_is_named_by_a_variable(home: Path) -> None:
    environ = {"HOME": str(home), "AWS_PROFILE": "ci"}
    assert find_keys(environ) == Keys("two", "100%second", "token")
    assert find_region(environ) == "sa-east-1"


def test_the_files_may_be_elsewhere(home: Path) -> None:
    environ = {
        "AWS_SHARED_CREDENTIALS_FILE": str(home / ".aws" / "credentials"),
        "AWS_CONFIG_FILE": str(home / ".aws" / "config"),
    }
    assert find_keys(environ) == Keys("one", "first")
    assert find_region(environ) == "eu-north-1"


def test_without_any_the_host_is_asked_by_the_client(tmp_path: Path) -> None:
    assert find_keys({}) is None
    assert find_keys({"HOME": str(tmp_path)}) is None
    assert find_region({"HOME": str(tmp_path)}) == "us-east-1"


def test_a_profile_that_is_not_there_is_said(home: Path) -> None:
    with pytest.raises(Refused, match="'prod'"):
        find_keys({"HOME": str(home), "AWS_PROFILE": "prod"})


def test_a_file_that_cannot_be_read_is_named_and_not_quoted(home: Path) -> None:
    (home / ".aws" / "credentials").write_text("aws_secret_access_key = topsecret\n")
    with pytest.raises(Refused, match="credentials cannot be read") as caught:
        find_keys({"HOME": str(home)})
    assert "topsecret" not in str(caught.value)


def test_keys_are_never_shown() -> None:
    assert "key" not in repr(Keys("id", "key"))
