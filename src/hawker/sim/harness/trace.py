"""Everything that happened in a run, line by line, and its digest: two runs are the same if their digests are."""

from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b


class Speaker(StrEnum):
    """Who speaks. `COMMIT` and `STATE` are for the digest and for `--trace`; a story leaves them out."""

    CLIENT = "client"
    NATURE = "nature"
    DAEMON = "daemon"
    COMMIT = "commit"
    FOUND = "found"


@dataclass(frozen=True, slots=True)
class TraceLine:
    """`at` is in virtual seconds since the beginning."""

    at: float
    kind: Speaker
    text: str

    def __str__(self) -> str:
        minutes, seconds = divmod(self.at, 60)
        return f"{int(minutes):5d}:{seconds:09.6f}  {self.kind.value:7} {self.text}"


class Trace:
    """`keeps` false: the lines are only counted into the digest."""

    def __init__(self, keeps: bool = True) -> None:
        self.lines: list[TraceLine] = []
        self._keeps = keeps
        self._hash = blake2b(digest_size=8)

    def add(self, at: float, kind: Speaker, text: str) -> None:
        line = TraceLine(at, kind, text)
        self._hash.update(f"{line}\n".encode())
        if self._keeps or kind is not Speaker.COMMIT:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
