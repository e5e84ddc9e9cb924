"""The WWW-Authenticate header of registries (RFC 9110, section 11). Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_SCHEME = re.compile(rf"\s*,?\s*({_TOKEN})(?:\s+(?=[^\s=,]+\s*=)|\s*(?=,|$))")
_PARAMETER = re.compile(rf'\s*,?\s*({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_TOKEN}))')
_LENGTH_LIMIT = 8192


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way in. `scheme` is in lower case; names of parameters too."""

    scheme: str
    parameters: tuple[tuple[str, str], ...] = ()

    def get(self, name: str) -> str | None:
        return next((value for key, value in self.parameters if key == name), None)


def parse_challenges(headers: Iterable[str]) -> list[Challenge]:
    """Every challenge, in order. What cannot be read ends the header it is in."""
    return [challenge for header in headers for challenge in _parse(header[:_LENGTH_LIMIT])]


def _parse(header: str) -> list[Challenge]:
    found: list[Challenge] = []
    position = 0
    while scheme := _SCHEME.match(header, position):
        position = scheme.end()
        parameters: list[tuple[str, str]] = []
        while parameter := _PARAMETER.match(header, position):
            quoted = re.sub(r"\\(.)", r"\1", parameter[2] or "")
            parameters.append((parameter[1].lower(), quoted or parameter[3] or ""))
            position = parameter.end()
        found.append(Challenge(scheme[1].lower(), tuple(parameters)))
    return found
