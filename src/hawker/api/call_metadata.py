"""Headers of our own around a call: what was written, which regions are missing from an answer, in whose name one part
of Hawker calls another, and how long the caller still waits. Pure.
"""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote

from hawker.errors import BadRequest

VERSION_HEADER = "hawker-version"
MISSING_HEADER = "hawker-missing-regions"
MISSING_NODES_HEADER = "hawker-missing-nodes"
CALLER_HEADER = "hawker-caller"
CALLER_TOKENS_HEADER = "hawker-caller-tokens"
"""The `token_ids` of the caller's grant; older nodes neither send it nor look at it."""
NODE_HEADER = "hawker-node"
PROBLEM_HEADER = "hawker-problem"
"""Of a refused handshake: its body in base64. Clients of WebSockets show their caller no body of an answer."""
DEADLINE_HEADER = "hawker-deadline-ms"
DEPLOY_TERM_HEADER = "hawker-deploy-term"

MAX_CALLER = 256
_MOST_DIGITS = 9
_NODE = re.compile(r"[0-9a-f]{8}")
_TOKENS = re.compile(r"[0-9a-f]{24}(,[0-9a-f]{24}){0,16}")
_PLACE = re.compile(r"[0-9a-f]{8}:[0-9]{1,18}:[0-9]{1,18}")
UNTOLD = "0:0"
"""Epoch and version of a place that its node cannot tell yet: only that node can be read there."""


class CallMetadata:
    """What an answer says beside its body. A handler may fill it in until it returns; `version` is the place in the
    catalog, `origin:epoch:version`, at which what the call wrote can be read."""

    __slots__ = ("missing_nodes", "missing_regions", "version")

    def __init__(self) -> None:
        self.version: str | None = None
        self.missing_regions: Sequence[str] = ()
        self.missing_nodes: Sequence[str] = ()

    def hear(self, headers: Mapping[str, str]) -> None:
        """Take over what the headers of an answer say; their names are in lower case."""
        self.version = headers.get(VERSION_HEADER)
        if nodes := headers.get(MISSING_NODES_HEADER):
            self.missing_nodes = tuple(node for node in map(str.strip, nodes.split(",")) if _NODE.fullmatch(node))
        if named := headers.get(MISSING_HEADER):
            self.missing_regions = tuple(unquote(region.strip()) for region in named.split(","))

    def headers(self) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        if self.version:
            found.append((VERSION_HEADER.encode(), self.version.encode()))
        if self.missing_regions:
            named = ", ".join(quote(region) for region in self.missing_regions)
            found.append((MISSING_HEADER.encode(), named.encode()))
        if self.missing_nodes:
            found.append((MISSING_NODES_HEADER.encode(), ", ".join(self.missing_nodes).encode()))
        return found


def place_of(text: str | None) -> str | None:
    """A request's `Hawker-Version`. Raises `BadRequest` for what is no place in a catalog."""
    if not text:
        return None
    if not _PLACE.fullmatch(text):
        raise BadRequest("the header Hawker-Version is not one that this API gave out")
    return text


def node_of(text: str | None) -> str:
    """The node that says it calls, in a call between nodes; empty for one of an older version, and for what is no
    node's id."""
    return text if text and _NODE.fullmatch(text) else ""


def written_name(name: str) -> str:
    """A caller's name as a header may hold it."""
    return quote(name[:MAX_CALLER])


def read_name(text: str) -> str:
    return unquote(text[: 12 * MAX_CALLER])[:MAX_CALLER]


def read_tokens(text: str | None) -> tuple[str, ...]:
    """Ids of tokens as a header has them; none for what is no such list."""
    return tuple(text.split(",")) if text and _TOKENS.fullmatch(text) else ()


def written_behalf(name: str, token_ids: Sequence[str]) -> str:
    """In whose name a call is passed on, in one text: the name, and in a last line of its own the ids of the tokens."""
    return f"{name}\n{','.join(token_ids)}" if token_ids else name


def read_behalf(behalf: str) -> tuple[str, tuple[str, ...]]:
    """The name and the ids of the tokens."""
    name, _, last = behalf.rpartition("\n")
    token_ids = read_tokens(last)
    return (name, token_ids) if token_ids else (behalf, ())


def written_deadline(left_s: float) -> str:
    """How long the caller still waits: each part of Hawker that passes a call on passes on what is left, so that nobody
    works for someone who has gone. Remaining time, not a moment: clocks differ."""
    return str(max(0, int(left_s * 1000)))


def read_deadline(text: str | None) -> float | None:
    """Seconds; None when the caller did not say. Raises `BadRequest`."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise BadRequest("the header Hawker-Deadline-Ms takes milliseconds, such as 1500")
    return int(text) / 1000
