"""A module that is imported when something of it is first used: the one way to import late. It is for what most
processes of its importer never need, so that a boot, or a command, does not pay for it.

    if TYPE_CHECKING:
        from hawker.up import fleet
    else:
        fleet = deferred("hawker.up.fleet")

mypy and tidy see an import like any other; `fleet.in_fleet(...)` is the first use. Its types stand in quotes.
"""

from importlib import import_module
from typing import Any


class _Deferred:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


def deferred(name: str) -> Any:
    """Stands for the module `name`. Any thread may use it; what importing raises, its use raises."""
    return _Deferred(name)
