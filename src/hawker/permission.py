"""What a call is about to do, as whoever judges it sees it: the action, and the thing it is done to."""

from enum import Flag

from hawker.value_object import ValueObject


class Action(Flag):
    """The classes of actions; values and letters are those of Fly's tokens (`resset.Action`)."""

    NONE = 0
    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    CONTROL = 16  # run a program in a machine, signal it, make tokens
    ALL = 31
    METRICS = 32  # our own, and no more than a part of READ: scrape the metrics of the node and its machines


DEPLOYING = (Action.WRITE, Action.CREATE, Action.DELETE)
"""The actions that a deploy takes on an app's machines."""

_LETTERS = {
    "r": Action.READ,
    "w": Action.WRITE,
    "c": Action.CREATE,
    "d": Action.DELETE,
    "C": Action.CONTROL,
    "m": Action.METRICS,
}


def actions_of(letters: str) -> Action:
    """`rw` as actions; `*` is all of them. Raises `ValueError` naming the letter."""
    found = Action.NONE
    for letter in letters:
        if letter != "*" and letter not in _LETTERS:
            raise ValueError(
                f"action {letter!r} is none of r (read), w (write), c (create), d (delete), C (control), m (metrics), *"
            )
        found |= Action.ALL if letter == "*" else _LETTERS[letter]
    return found


def letters_of(actions: Action) -> str:
    return "".join(letter for letter, action in _LETTERS.items() if action in actions)


def words_of(actions: Action) -> str:
    """The letters, each with what it stands for: "w (write)"."""
    return ", ".join(
        f"{letter} ({action.name.lower()})" for letter, action in _LETTERS.items() if action in actions and action.name
    )


def covers(actions: Action, action: Action) -> bool:
    """Whether a caller that may do `actions` may do `action`."""
    return action in actions or (action is Action.METRICS and Action.READ in actions)


class Attempt(ValueObject, frozen=True):
    """Something done to a machine of an app, to an app of an org, to an org, or to the node as a whole when none of
    them is named. `source` is the caller's address, `now` Unix seconds."""

    action: Action
    org: str | None = None
    """The slug of the organization."""
    app: str | None = None
    """The name of the app; its `org` is named, too."""
    machine: str | None = None
    """The id of the machine; its `app` is named, too."""
    source: str = ""
    now: float = 0.0
