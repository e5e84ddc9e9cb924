"""The app's file as a command finds it: fly.toml, fly.json or fly.yaml here, or the one that `-c` names. Its problems
are said on stderr, a line each."""

from pathlib import Path

import click

from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.options import Command
from hawker.flytoml.app_config import AppConfig
from hawker.flytoml.document import MAX_BYTES, Unreadable, read
from hawker.flytoml.reader import read_app_config
from hawker.value_object import ValueObject

NAMES = ("fly.toml", "fly.json", "fly.yaml", "fly.yml")
MAX_LOCAL_BYTES = 1024 * 1024


class FlyFile(ValueObject, frozen=True):
    """`document` is the file as plain JSON values, `config` what it says."""

    path: Path
    config: AppConfig
    document: object

    def local_files(self) -> dict[str, bytes]:
        """The content of each `local_path` of `[[files]]`, which is in the file's folder or below: a file of strangers
        must not send a key of the user's to a machine. Raises `Failure`."""
        folder = self.path.resolve().parent
        found: dict[str, bytes] = {}
        for path in (file.local_path for file in self.config.files or () if file.local_path):
            if not (folder / path).resolve().is_relative_to(folder):
                raise Failure(f"{self.path}: files: {path} is not below {folder}", ExitStatus.USAGE)
            found[path] = _content(folder / path, MAX_LOCAL_BYTES)
        return found


def config_option(command: Command) -> Command:
    """Adds `--config`, passed on as `file`."""
    return click.option(
        "-c", "--config", "file", metavar="FILE", help="The app's file; by default fly.toml, fly.json or fly.yaml here."
    )(command)


def lax_option(command: Command) -> Command:
    return click.option("--lax", is_flag=True, help="Take keys that nobody knows, with a warning each.")(command)


def read_fly_file(file: str | None, *, lax: bool = False) -> FlyFile:
    """Raises `Failure` with the status of a wrong command line when the file has an error."""
    path = _found() if file is None else Path(file)
    try:
        text = _content(path, MAX_BYTES).decode()
    except UnicodeDecodeError:
        raise Failure(f"{path}: it is no text in UTF-8", ExitStatus.USAGE) from None
    reading = read_app_config(text, path.suffix, lax=lax)
    for problem in reading.problems:
        click.echo(problem.line_of(str(path)), err=True)
    if reading.config is None:
        errors = sum(not problem.warning for problem in reading.problems)
        raise Failure(f"{path} has {errors} error{'s' if errors > 1 else ''}", ExitStatus.USAGE)
    return FlyFile(path, reading.config, reading.document)


def app_here() -> str | None:
    """The app that the file here names. A file with other errors names it too; without a file, or where that cannot be
    read, None."""
    path = _here()
    if path is None:
        return None
    try:
        root = read(_content(path, MAX_BYTES).decode(), path.suffix).value
    except (UnicodeDecodeError, Unreadable):
        return None
    app = root["app"].value if isinstance(root, dict) and "app" in root else None
    return app if isinstance(app, str) else None


def _here() -> Path | None:
    return next((Path(name) for name in NAMES if Path(name).is_file()), None)


def _found() -> Path:
    found = _here()
    if found is None:
        raise Failure(
            "there is no fly.toml here: name the file with -c FILE, or write one with `hawker launch`", ExitStatus.USAGE
        )
    return found


def _content(path: Path, most: int) -> bytes:
    """A regular file's, of at most so many bytes."""
    if not path.is_file():
        raise Failure(f"{path}: there is no such file", ExitStatus.USAGE)
    try:
        with path.open("rb") as opened:
            content = opened.read(most + 1)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}", ExitStatus.USAGE) from None
    if len(content) > most:
        raise Failure(f"{path}: it is longer than {most >> 10} KiB", ExitStatus.USAGE)
    return content
