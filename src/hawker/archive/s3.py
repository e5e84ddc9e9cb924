"""Archives in a bucket of S3 or of a service that speaks it. The one file that knows the client library.

Keys come from where other AWS tools keep them: variables, then the profile in the files below `~/.aws`. When neither
has any, the S3 client asks what the host offers: web identity, container or instance metadata.
"""

import configparser
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from hawker.archive.bucket import ArchiveBucket
from hawker.archive.directory import MARK, MARK_TEXT
from hawker.archive.failure import ArchiveDamaged, ArchiveRefused
from hawker.archive.pack import owned
from hawker.errors import Unavailable
from hawker.fair.threads import Pool, in_thread

CONNECT_S = 5
REQUEST_S = 60
_TRIES = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}  # within one call; what calls has its own
_CHUNK = 1 << 20
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True, repr=False)
class S3Keys:
    """Keys for requests to S3; `session_token` with keys that expire. Never shown: it has no `repr` of its fields."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None


def find_keys(environ: Mapping[str, str]) -> S3Keys | None:
    """Raises `ArchiveRefused` for files that cannot be read and for a profile that was named and is not there."""
    if environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
        return S3Keys(
            environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"], environ.get("AWS_SESSION_TOKEN") or None
        )
    profile = environ.get("AWS_PROFILE", "default")
    shared = _section(_path(environ, "AWS_SHARED_CREDENTIALS_FILE", "credentials"), profile)
    config = _section(_path(environ, "AWS_CONFIG_FILE", "config"), _config_name(profile))
    found = {**config, **shared}
    if "aws_access_key_id" in found and "aws_secret_access_key" in found:
        return S3Keys(found["aws_access_key_id"], found["aws_secret_access_key"], found.get("aws_session_token"))
    if "AWS_PROFILE" in environ:
        raise ArchiveRefused(f"there are no keys in the AWS profile {profile!r}")
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
        raise ArchiveRefused(f"{path} cannot be read: {type(error).__name__}") from error  # its text may hold a key
    return dict(parser[name]) if parser.has_section(name) else {}


class S3Backend:
    """Keeps `backend.ArchiveBackend`. The client is made anew after a failure, so that new keys in a file are found."""

    def __init__(self, bucket: ArchiveBucket, environ: Mapping[str, str]) -> None:
        self._bucket = bucket
        self._environ = environ
        self._client: S3Store | None = None

    @property
    def name(self) -> str:
        return f"s3://{self._bucket.name}/{self._bucket.prefix}".rstrip("/")

    async def check(self) -> None:
        async with self._talking() as client:
            await obstore.put_async(client, MARK, MARK_TEXT)

    async def put(self, key: str, file: Path) -> None:
        async with self._talking() as client:
            await obstore.put_async(client, key, file, attributes={"Content-Type": "application/zstd"})

    async def put_new(self, key: str, file: Path) -> bool:
        async with self._talking() as client:
            try:
                await obstore.put_async(client, key, file, mode="create")
            except AlreadyExistsError:
                return False
            return True

    async def names(self, prefix: str, most: int) -> list[str]:
        found: list[str] = []
        async with self._talking() as client:
            async for batch in obstore.list(client, prefix=prefix):
                found += [each["path"] for each in batch]
                if len(found) > most:
                    raise ArchiveDamaged(f"there are more than {most} objects below {prefix}")
        return sorted(found)

    async def size(self, key: str) -> int | None:
        async with self._talking() as client:
            try:
                return (await obstore.head_async(client, key))["size"]
            except FileNotFoundError:
                return None

    async def get(self, key: str, target: Path, most_bytes: int) -> bool:
        """Raises `ArchiveDamaged` for more than `most_bytes`, `ArchiveRefused`, `Unavailable`."""
        async with self._talking() as client:
            try:
                answer = await obstore.get_async(client, key)
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return False
            if answer.meta["size"] > most_bytes:
                raise ArchiveDamaged(f"it has {answer.meta['size']} bytes, {most_bytes} at the most")
            await _save(answer, target, most_bytes)
            return True

    async def remove(self, key: str) -> None:
        async with self._talking() as client:
            with suppress(FileNotFoundError):
                await obstore.delete_async(client, key)

    @asynccontextmanager
    async def _talking(self) -> AsyncIterator[S3Store]:
        try:
            self._client = self._client or self._connect()
            yield self._client
        except (PermissionDeniedError, UnauthenticatedError) as error:
            self._client = None
            raise ArchiveRefused(f"the archive {self.name} refuses these keys: {_reason(error)}") from error
        except FileNotFoundError as error:
            self._client = None
            raise ArchiveRefused(f"the archive {self.name} is not there: {_reason(error)}") from error
        except BaseError as error:
            self._client = None
            raise Unavailable(f"the archive {self.name} cannot be reached: {_reason(error)}") from error

    def _connect(self) -> S3Store:
        keys, bucket = find_keys(self._environ), self._bucket
        endpoint = bucket.endpoint or self._environ.get("AWS_ENDPOINT_URL_S3") or self._environ.get("AWS_ENDPOINT_URL")
        config: dict[str, Any] = {"region": bucket.region or find_region(self._environ)}
        if endpoint is not None:
            config["endpoint"] = endpoint
        if keys is not None:
            config |= {"access_key_id": keys.access_key_id, "secret_access_key": keys.secret_access_key}
            config |= {"session_token": keys.session_token} if keys.session_token else {}
        return S3Store(
            bucket.name,
            prefix=bucket.prefix or None,
            client_options={
                "allow_http": bool(endpoint and endpoint.startswith("http://")),
                "connect_timeout": timedelta(seconds=CONNECT_S),
                "timeout": timedelta(seconds=REQUEST_S),
            },
            retry_config=_TRIES,  # type: ignore[arg-type]
            **config,
        )


async def _save(answer: "obstore.GetResult", target: Path, most_bytes: int) -> None:
    count = 0
    with owned(target) as file:
        async for chunk in answer.stream(min_chunk_size=_CHUNK):
            count += len(chunk)
            if count > most_bytes:
                raise ArchiveDamaged(f"it has more than {most_bytes} bytes")
            await in_thread(Pool.ARCHIVE, file.write, chunk)


def _reason(error: BaseException) -> str:
    """The first paragraph: after it comes the library's own account of itself."""
    text = " ".join(str(error).split("\n\n")[0].split())
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}..."
