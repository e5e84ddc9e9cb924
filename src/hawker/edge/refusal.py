"""What the edge answers when it cannot do what a client asks: a code, a status, words. Codes are those that Fly
documents where it has one; HQ, HC and HB are ours. docs/edge.md has the table.
"""

from enum import Enum

from hawker.value_object import ValueObject


class _Kind(ValueObject, frozen=True):
    status: int
    words: str


class Code(Enum):
    """The codes of errors, each with its HTTP status, and the words for a client when nothing better is known."""

    PR01 = _Kind(503, "no machine of the app can take the request")
    PR02 = _Kind(404, "the machine or region that was asked for is not there")
    PR03 = _Kind(503, "no machine took the request in time")
    PR04 = _Kind(504, "no machine answered in time")
    PU01 = _Kind(502, "the machine does not speak HTTP/2")
    PU02 = _Kind(502, "the machine broke the answer off")
    PU03 = _Kind(504, "the machine sent nothing for too long")
    PC01 = _Kind(502, "the machine refuses connections")
    PM01 = _Kind(503, "the machine could not be started")
    PA01 = _Kind(502, "the request is too large to be replayed")
    PA02 = _Kind(502, "the request was replayed too often")
    PA03 = _Kind(502, "the replay that the app ordered is malformed")
    PA04 = _Kind(502, "the app that the request was replayed to is not there")
    HQ01 = _Kind(503, "too many requests wait for a machine")
    HC01 = _Kind(429, "too many connections from one address")
    HC02 = _Kind(429, "too many connections to one app")
    HB01 = _Kind(400, "the request is malformed")
    HB02 = _Kind(431, "the head of the request is too large")
    HB03 = _Kind(414, "the first line of the request is too long")
    HB04 = _Kind(408, "the request came too slowly")
    HB05 = _Kind(421, "this connection is for another name")
    HB06 = _Kind(404, "nothing is served under this name")
    HB07 = _Kind(405, "CONNECT is not served")

    @property
    def status(self) -> int:
        return self.value.status

    @property
    def words(self) -> str:
        return self.value.words


class ProxyError(Exception):
    """The edge cannot do what a client asks. `told` is what the client may read, `known` what only the app's log says,
    such as the address of a machine."""

    def __init__(self, code: Code, told: str = "", known: str = "") -> None:
        super().__init__(told or code.words)
        self.code = code
        self.told = told or code.words
        self.known = known

    @property
    def whole(self) -> str:
        """Both texts, for the app's log."""
        return f"{self.told}: {self.known}" if self.known else self.told
