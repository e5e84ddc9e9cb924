"""Tokens and passwords that a command is given: from a file, standard input or a prompt. Not from the command line,
which every user of the host can read for as long as the process lives. Light, since `--help` imports it.
"""

import re
import sys
from pathlib import Path

import click

_ROOT = re.compile(r"hwk_[0-9a-f]{64}")
_MOST_BYTES = 64 * 1024
HOW = "write it to a file of your own and give --token-file FILE, or - for standard input, or set HAWKER_TOKEN"


def refuse_root(text: str | None) -> None:
    """Raises `UsageError` for a root token that stands in the command line."""
    if text is not None and _ROOT.fullmatch(text.strip()):
        raise click.UsageError(f"every user of this host can read a root token in the command line: {HOW}")


def read_token(file: str | None) -> str | None:
    """The first line of the file, of standard input for `-`; None without a file. Raises `UsageError`."""
    if file is None:
        return None
    try:
        text = sys.stdin.readline(_MOST_BYTES) if file == "-" else _first_line(Path(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise click.UsageError(f"cannot read the token in {file}: {reason}") from error
    if not text.strip():
        raise click.UsageError(f"there is no token in {'standard input' if file == '-' else file}")
    return text.strip()


def password_options(function: click.decorators.FC) -> click.decorators.FC:
    """For a command that calls `read_password`."""
    stdin = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
    file = click.option("--password-file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
                        help="Read the password from a file.")  # fmt: skip
    hidden = click.option("--password", hidden=True, expose_value=False, callback=_refuse_password)
    return stdin(file(hidden(function)))


def _refuse_password(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(
            "every user of this host can read a password in the command line: leave it out to be asked, or use"
            " --password-stdin or --password-file FILE"
        )


def read_password(from_stdin: bool, file: Path | None) -> str:
    """From standard input, a file, or a person who is asked. Raises `UsageError`."""
    if from_stdin and file is not None:
        raise click.UsageError("give --password-stdin or --password-file, not both")
    if not from_stdin and file is None:
        given = ask_token("Password")
        if given is None:
            raise click.UsageError("nobody to ask for the password: give --password-stdin or --password-file FILE")
        return given
    try:
        text = sys.stdin.read(_MOST_BYTES) if file is None else file.read_text(encoding="utf-8")[:_MOST_BYTES]
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"cannot read the password: {error}") from error
    if not text.rstrip("\r\n"):
        raise click.UsageError(f"there is no password in {'standard input' if file is None else file}")
    return text.rstrip("\r\n")


def ask_token(what: str) -> str | None:
    """Asks a person, and shows nothing of the answer; None where nobody sits."""
    if not sys.stdin.isatty():
        return None
    return str(click.prompt(what, hide_input=True, err=True)).strip()


def _first_line(file: Path) -> str:
    with file.open(encoding="utf-8") as opened:
        return opened.readline(_MOST_BYTES)
