"""Archives in a bucket of S3 or of a service that speaks it. The one file that knows the client library.

Keys come from where other AWS tools keep them: variables, then the profile in the files below `~/.aws`. When neither
has any, the S3 client asks what the host offers: web identity, container or instance metadata.
"""

import configparser
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from hawker.archive.bucket import ArchiveBucket
from hawker.archive.directory import MARK, MARK_TEXT
from hawker.archive.failure import ArchiveDamaged, ArchiveRefused
from hawker.archive.pack import owned
from hawker.errors import HawkerError, Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.value_object import ValueObject

if TYPE_CHECKING:
    from obstore import ObjectMeta

SMALL_BYTES = 1 << 20
"""The most bytes that are sent in one go with a question: more may need longer."""

_TRIES = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}  # within one call; what calls has its own
_CHUNK = 1 << 20
_LONGEST_REASON = 300
_UNTRUSTED = re.compile(r"InvalidCertificate\(\s*(\w+)")
_STATUS = re.compile(r"status code: (\d{3} [\w ]+)(?:.*?<Code>(\w+)</Code>)?", re.DOTALL)
_TOO_LATE = ("kind: Timeout", "TimedOut")
_CAUSES = (
    ("ConnectionRefused", "nobody listens there: see to its service and to the endpoint"),
    ("dns error", "the name of its host is not found: see to the endpoint"),
    ("ConnectionReset", "the connection was cut"),
    ("IncompleteMessage", "the connection was cut"),
    ("IncompleteBody", "the answer was cut short"),
    ("UnexpectedEof", "the answer was cut short"),
)
"""The words of the library in its account of itself, and what they mean."""


@dataclass(frozen=True, slots=True, repr=False)
class S3Keys:
    """Keys for requests to S3; `session_token` with keys that expire. Never shown: it has no `repr` of its fields."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None


class S3Waits(ValueObject, frozen=True, kw_only=True):
    """The waits in seconds, above 0: for a connection, for an answer or the next piece of one, and for the whole of
    something large. A service that is silent is given up after `silence_s`, one to which something large is sent after
    `whole_s`; whoever calls has tries of its own."""

    connect_s: float = 5.0
    """The seconds until a connection stands, its TLS counted."""
    silence_s: float = 60.0
    whole_s: float = 300.0


class _Talk(Enum):
    """`READ` and `SEND` are of what may be large."""

    ASK = "ask"
    READ = "read"
    SEND = "send"


def find_keys(environ: Mapping[str, str]) -> S3Keys | None:
    """The keys for S3 that the environment or its files have. Raises `ArchiveRefused` for files that cannot be read and
    for a profile that was named and is not there."""
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

    def __init__(self, bucket: ArchiveBucket, environ: Mapping[str, str], waits: S3Waits | None = None) -> None:
        self._bucket = bucket
        self._environ = environ
        self._waits = waits or S3Waits()
        self._clients: dict[_Talk, S3Store] = {}

    @property
    def name(self) -> str:
        return f"s3://{self._bucket.name}/{self._bucket.prefix}".rstrip("/")

    async def check(self) -> None:
        async with self._talking() as client:
            await obstore.put_async(client, MARK, MARK_TEXT)

    async def put(self, key: str, file: Path) -> None:
        async with self._talking(await _way_of(file)) as client:
            await obstore.put_async(client, key, file, attributes={"Content-Type": "application/zstd"})

    async def put_new(self, key: str, file: Path) -> bool:
        async with self._talking(await _way_of(file)) as client:
            try:
                await obstore.put_async(client, key, file, mode="create")
            except AlreadyExistsError:
                return False
            return True

    async def names(self, prefix: str, most: int) -> list[str]:
        found: list[str] = []
        async for batch in self._listed(prefix, most):
            found += [each["path"] for each in batch]
        return sorted(found)

    async def versions(self, prefix: str, most: int) -> dict[str, str | None]:
        found = dict[str, str | None]()
        async for batch in self._listed(prefix, most):
            found |= {each["path"]: each["e_tag"] for each in batch}
        return found

    async def _listed(self, prefix: str, most: int) -> "AsyncIterator[Sequence[ObjectMeta]]":
        count = 0
        async with self._talking() as client:
            async for batch in obstore.list(client, prefix=prefix):
                count += len(batch)
                if count > most:
                    raise ArchiveDamaged(f"there are more than {most} objects below {prefix}")
                yield batch

    async def size(self, key: str) -> int | None:
        async with self._talking() as client:
            try:
                return (await obstore.head_async(client, key))["size"]
            except FileNotFoundError:
                return None

    async def get(self, key: str, target: Path, most_bytes: int) -> bool:
        """Reads an object into `target`. Raises `ArchiveDamaged` for more than `most_bytes`, `ArchiveRefused`,
        `Unavailable`."""
        async with self._talking(_Talk.READ) as client:
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

    async def remove_drafts(self, before: float) -> int:
        """An object is there whole, or not at all."""
        return 0

    @asynccontextmanager
    async def _talking(self, way: _Talk = _Talk.ASK) -> AsyncIterator[S3Store]:
        try:
            if way not in self._clients:
                self._clients[way] = self._connect(way)
            yield self._clients[way]
        except (PermissionDeniedError, UnauthenticatedError) as error:
            self._clients.clear()
            raise ArchiveRefused(f"the archive {self.name} refuses these keys: {_reason(error)}") from error
        except FileNotFoundError as error:
            self._clients.clear()
            raise ArchiveRefused(f"the archive {self.name} is not there: {_reason(error)}") from error
        except BaseError as error:
            self._clients.clear()
            raise self._failure(str(error)) from error

    def _failure(self, said: str) -> HawkerError:
        """What may pass by itself, unless the place shows a certificate of somebody else."""
        untrusted = _UNTRUSTED.search(said)
        if untrusted is not None:
            return ArchiveRefused(
                f"the certificate of the archive {self.name} is not trusted ({untrusted[1]}): see to the certificate,"
                " to the endpoint, and to the clock and the authorities of this host"
            )
        if any(mark in said for mark in _TOO_LATE):
            return Unavailable(
                f"the archive {self.name} does not answer, or too slowly: it was given {self._waits.silence_s:g} s"
                f" ({self._waits.whole_s:g} s for something large); see to its service, to the endpoint, and to the"
                " network between"
            )
        return Unavailable(f"the archive {self.name} cannot be reached: {_cause(said)}")

    def _connect(self, way: _Talk) -> S3Store:
        waits = self._waits
        keys, bucket = find_keys(self._environ), self._bucket
        endpoint = bucket.endpoint or self._environ.get("AWS_ENDPOINT_URL_S3") or self._environ.get("AWS_ENDPOINT_URL")
        config: dict[str, Any] = {"region": bucket.region or find_region(self._environ)}
        if endpoint is not None:
            config["endpoint"] = endpoint
        if keys is not None:
            config |= {"access_key_id": keys.access_key_id, "secret_access_key": keys.secret_access_key}
            config |= {"session_token": keys.session_token} if keys.session_token else {}
        options: Any = {
            "allow_http": bool(endpoint and endpoint.startswith("http://")),
            "connect_timeout": timedelta(seconds=waits.connect_s),
            "timeout": timedelta(seconds=waits.silence_s if way is _Talk.ASK else waits.whole_s),
        }
        if way is _Talk.READ:  # of a request it counts from its beginning, what is sent with it included
            options["read_timeout"] = timedelta(seconds=waits.silence_s)
        return S3Store(
            bucket.name,
            prefix=bucket.prefix or None,
            client_options=options,
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


async def _way_of(file: Path) -> _Talk:
    size = (await in_thread(Pool.ARCHIVE, file.stat)).st_size
    return _Talk.ASK if size <= SMALL_BYTES else _Talk.SEND


def _cause(said: str) -> str:
    status = _STATUS.search(said)
    if status is not None:
        return f"it answers {status[1].strip()}" + (f" ({status[2]})" if status[2] else "")
    known = next((means for mark, means in _CAUSES if mark in said), None)
    return known or _first_paragraph(said)


def _reason(error: BaseException) -> str:
    return _first_paragraph(str(error))


def _first_paragraph(said: str) -> str:
    """After it comes the library's own account of itself."""
    text = " ".join(said.split("\n\n")[0].split())
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}..."
