"""An error as it is stored with a run, and the way back: a child's error is raised in its parent as what it was."""

from typing import cast

import msgspec

from hawker import errors
from hawker.errors import HawkerError, NoRoom


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`kind` is the name of a class in `errors`, or empty for what is outside the family. `text` is for people."""

    text: str
    kind: str = ""
    scope: str = ""
    shortfall: dict[str, int] = {}
    nearest: str | None = None

    @property
    def status(self) -> int:
        return _class_of(self.kind).status

    @property
    def retry(self) -> bool:
        return _class_of(self.kind).retry


def fault_of(error: BaseException | str) -> Fault:
    if isinstance(error, str):
        return Fault(text=error)
    if isinstance(error, NoRoom):
        parts = {"scope": error.scope, "shortfall": error.shortfall, "nearest": error.nearest}
        return msgspec.structs.replace(Fault(text=str(error), kind="NoRoom"), **parts)
    if isinstance(error, HawkerError):
        return Fault(text=str(error), kind=_known_kind(type(error)))
    return Fault(text=f"{type(error).__name__}: {error}")


def error_of(fault: Fault) -> HawkerError:
    """The error again, with its text as it was. What is outside the family becomes the family's base: an internal
    error, status 500, that a retry does not help."""
    error = _class_of(fault.kind).__new__(_class_of(fault.kind), fault.text)
    if isinstance(error, NoRoom):
        error.scope, error.shortfall, error.nearest = fault.scope, fault.shortfall, fault.nearest
    return error  # `__init__` is left out: it would put the prefix before the text once more


def _class_of(kind: str) -> type[HawkerError]:
    found = getattr(errors, kind, HawkerError) if kind else HawkerError
    assert issubclass(found, HawkerError), kind
    return cast(type[HawkerError], found)


def _known_kind(found: type[BaseException]) -> str:
    """The nearest class of the family itself, for errors that a room has made more special."""
    names: list[str] = [cls.__name__ for cls in found.__mro__]
    return next(name for name in names if name in vars(errors))
