"""One value of any type of the route table, made from the type itself: what the table-driven tests send and answer."""

from datetime import UTC, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from hawker.api.bounds import Signal
from hawker.api.contract.app import AssignIpRequest
from hawker.api.contract.exec import ExecRequest
from hawker.api.route import AnyRoute, Page

_PLAIN: dict[Any, Any] = {
    str: "x",
    int: 1,
    float: 1.5,
    bool: True,
    bytes: b"\0\xff",
    datetime: datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC),
    NoneType: None,
    Signal: "SIGTERM",
    AssignIpRequest: AssignIpRequest(type="v6"),
    ExecRequest: ExecRequest(command=("true",)),
}


def sample(kind: Any) -> Any:
    """With every required field set, and of a union the first member that is something."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(kind)
    return _generic(get_origin(kind), get_args(kind))


def _struct(kind: type[msgspec.Struct]) -> msgspec.Struct:
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{field.name: sample(hints[field.name]) for field in msgspec.structs.fields(kind) if field.required})


def _generic(origin: Any, args: tuple[Any, ...]) -> Any:
    if origin in (Union, UnionType):
        return sample(next(arg for arg in args if arg is not NoneType))
    if origin is Annotated:
        return sample(args[0])
    if origin is Literal:
        return args[0]
    if origin is tuple:
        return (sample(args[0]),)
    if origin is Page:
        return Page(items=(sample(args[0]),), next_cursor="next")
    assert origin is dict, f"no sample of {origin}"
    return {"key": sample(args[1])}


def params_of(route: AnyRoute) -> Any:
    """Path parameters that need quoting."""
    return route.params(**{name: f"{name}/ä %2F?" for name in route.params.__struct_fields__})
