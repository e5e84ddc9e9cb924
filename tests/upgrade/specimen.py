"""Values of any stored type, made from the type alone: one with every field set, one with no more than must be there.
And the type's shape, as text that changes when what is written changes."""

import re
from typing import Any

from msgspec import inspect


def full(type_: Any) -> Any:
    """As plain values; every field is set to something that is not its default."""
    return _value(inspect.type_info(type_), every=True)


def least(type_: Any) -> Any:
    return _value(inspect.type_info(type_), every=False)


def _value(info: inspect.Type, *, every: bool) -> Any:
    match info:
        case inspect.StructType():
            fields = [field for field in info.fields if every or field.required]
            values = {field.encode_name: _field(field, every=every) for field in fields}
            return list(values.values()) if info.array_like else values
        case inspect.UnionType():
            return _value(_first(info), every=every)
        case inspect.EnumType():
            return list(info.cls)[-1].value
        case inspect.LiteralType():
            return info.values[-1]
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return [_value(info.item_type, every=every)] if every else []
        case inspect.TupleType():
            return [_value(item, every=every) for item in info.item_types]
        case inspect.DictType():
            key, value = _value(info.key_type, every=every), _value(info.value_type, every=every)
            return {key: value} if every else {}
        case _:
            return _scalar(info)


def _field(field: inspect.Field, *, every: bool) -> Any:
    value = _value(field.type, every=every)
    if isinstance(value, bool):
        return not field.default if isinstance(field.default, bool) else value
    return f"a {field.name}" if value == "text" else value


def _first(info: inspect.UnionType) -> inspect.Type:
    """The richest kind of value that the field takes."""
    kinds = [kind for kind in info.types if not isinstance(kind, inspect.NoneType)]
    return next((kind for kind in kinds if isinstance(kind, inspect.StructType)), kinds[0])


def _scalar(info: inspect.Type) -> Any:
    match info:
        case inspect.StrType():
            return "text"
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return max(7, info.ge or 0)
        case inspect.FloatType():
            return 1.5
        case inspect.BytesType():
            return b"\x81\xa1a\x01"
        case inspect.AnyType() | inspect.RawType():
            return {"any": 1}
        case _:
            raise AssertionError(f"say here how a value of {info} is made")


def shape(type_: Any) -> dict[str, Any]:
    """The type, and of each struct and enum in it what is written of it."""
    parts: dict[str, Any] = {}
    return {"type": _say(inspect.type_info(type_), parts), "parts": dict(sorted(parts.items()))}


def anonymous(shape: dict[str, Any]) -> list[Any]:
    """A shape without the names of its types, which nobody writes: each part stands where it is first spoken of."""
    parts, order = shape["parts"], list[str]()

    def say(text: str) -> str:
        for word in re.findall(r"\w+", text):
            if word in parts and word not in order:
                order.append(word)
        return re.sub(r"\w+", lambda found: f"part {order.index(found[0])}" if found[0] in order else found[0], text)

    said: list[Any] = [say(shape["type"])]
    for name in order:  # which grows meanwhile
        part = parts[name]
        is_struct = isinstance(part, dict)
        said.append(
            {field: say(text) if isinstance(text, str) else text for field, text in part.items()} if is_struct else part
        )
    return said


def _say(info: inspect.Type, parts: dict[str, Any]) -> str:
    match info:
        case inspect.StructType():
            name = info.cls.__name__
            if name not in parts:
                parts[name] = {}
                parts[name] |= {field.encode_name: _say_field(field, parts) for field in info.fields}
                parts[name] |= {f"[{tag}]": value for tag, value in _options(info).items()}
            return name
        case inspect.EnumType():
            parts[info.cls.__name__] = [member.value for member in info.cls]
            return info.cls.__name__
        case inspect.UnionType():
            return " | ".join(sorted(_say(kind, parts) for kind in info.types))
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return f"list of {_say(info.item_type, parts)}"
        case inspect.TupleType():
            return f"({', '.join(_say(item, parts) for item in info.item_types)})"
        case inspect.DictType():
            return f"map of {_say(info.key_type, parts)} to {_say(info.value_type, parts)}"
        case inspect.LiteralType():
            return " or ".join(map(repr, info.values))
        case _:
            return type(info).__name__.removesuffix("Type").lower()


def _say_field(field: inspect.Field, parts: dict[str, Any]) -> str:
    return _say(field.type, parts) + ("" if field.required else ", optional")


def _options(info: inspect.StructType) -> dict[str, Any]:
    given = {"tag": info.tag, "array": info.array_like, "strict": info.forbid_unknown_fields}
    return {name: value for name, value in given.items() if value not in (None, False)}


def contains(now: Any, before: Any) -> bool:
    """Whether everything in `before` is in `now` unchanged; a newer type may say more."""
    if isinstance(before, dict) and isinstance(now, dict):
        return all(key in now and contains(now[key], value) for key, value in before.items())
    if isinstance(before, list) and isinstance(now, list | tuple):
        return len(now) == len(before) and all(map(contains, now, before))
    return bool(now == before)
