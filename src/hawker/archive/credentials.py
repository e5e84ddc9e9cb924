"""Keys for S3 from where other AWS tools keep them: variables, then the profile in the files below `~/.aws`.

When neither has any, the S3 client asks what the host offers: web identity, container or instance metadata.
"""

import configparser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hawker.archive.failure import Refused


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """Never shown: it has no `repr` of its fields."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None


def find_keys(environ: Mapping[str, str]) -> Keys | None:
    """Raises `Refused` for files that cannot be read and for a profile that was named and is not there."""
    if environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
        return Keys(
            environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"], environ.get("AWS_SESSION_TOKEN") or None
        )
    profile = environ.get("AWS_PROFILE", "default")
    shared = _section(_path(environ, "AWS_SHARED_CREDENTIALS_FILE", "credentials"), profile)
    config = _section(_path(environ, "AWS_CONFIG_FILE", "config"), _config_name(profile))
    found = {**config, **shared}
    if "aws_access_key_id" in found and "aws_secret_access_key" in found:
        return Keys(found["aws_access_key_id"], found["aws_secret_access_key"], found.get("aws_session_token"))
    if "AWS_PROFILE" in environ:
        raise Refused(f"there are no keys in the AWS profile {profile!r}")
    return None


def find_region(environ: Mapping[str, str]) -> str:
    """`us-east-1` when nothing says another one; services that are not AWS's rarely mind."""
    named = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    profile = environ.get("AWS_PROFILE", "default")
    file = _path(environ, "AWS_CONFIG_FILE", "config")
    return named or _section(file, _config_name(profile)).get("region") or "us-east-1"


def _config_name(profile: str) -> str:
    return profile if profile == "default" else f"profile {profile}"


def _path(environ: Mapping[str, str], variable: str, name: str) -> Path | None:
    if environ.get(variable):
        return Path(environ[variable])
    return Path(environ["HOME"]) / ".aws" / name if environ.get("HOME") else None


def _section(path: Path | None, name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        if path is not None and path.exists():
            parser.read_string(path.read_text())
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise Refused(f"{path} cannot be read: {type(error).__name__}") from error  # its text may hold a key
    return dict(parser[name]) if parser.has_section(name) else {}
