"""What a command answers with: JSON for programs or text for people, on stdout. Everything else goes to stderr."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

import click
import msgspec

from hawker.cli.notation import OneOf

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"


def output_option(command: C) -> C:
    """Adds `--output`, passed on as `form`."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=OneOf(Form),
        default=Form.TABLE.value,
        show_default=True,
        help="For people or for programs.",
    )(command)


def show(value: T, form: Form, text: Callable[[T], str]) -> None:
    click.echo(text(value) if form is Form.TABLE else as_json(value))


def as_json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def line_of_json(value: object) -> str:
    """For streams: one value a line."""
    return msgspec.json.encode(value).decode()


def note(text: str) -> None:
    """For the person who waits, not for a program."""
    click.echo(text, err=True)
