"""Bodies of what nodes ask each other about apps and what belongs to whom."""

from hawker.api.bodies.body import Answer, Request


class Owner(Answer, frozen=True, kw_only=True):
    """The node that has it, and the app that it is of."""

    node: str
    app: str


class NameRequest(Request, frozen=True, kw_only=True):
    """Keep the name of an app for `claim`, who will make it at the node `home`; also if it is kept for the claim
    `instead_of`, whose app was not made."""

    claim: str
    home: str
    instead_of: str | None = None


class HomeRequest(Request, frozen=True, kw_only=True):
    """Whose home is to be told, or, with `take`, taken over, instead of the forgotten node `old`."""

    old: str = ""
    take: bool = False


class AppCopy(Answer, frozen=True, kw_only=True):
    """What a node has of an app: its home as the node knows it, in which reign, the number of the secrets and when they
    were read there."""

    home: str
    reign: int
    number: int
    read_at: float


class NameKept(Answer, frozen=True, kw_only=True):
    """Whom the name is kept for, and for how many seconds. `taken`: an app of this name is known here."""

    claim: str
    home: str
    age_s: float
    taken: bool = False
