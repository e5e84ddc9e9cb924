"""News that is passed on: each piece so many times, the least told first. One piece a key, the newest wins."""

from collections.abc import Iterator


class _Rumor:
    __slots__ = ("content", "order", "told")

    def __init__(self, content: bytes, order: int) -> None:
        self.content, self.order, self.told = content, order, 0


class Rumors:
    """Bounded by what it is told of: members and operators' commands, which are bounded themselves."""

    def __init__(self) -> None:
        self._rumors: dict[str, _Rumor] = {}
        self._order = 0

    def __bool__(self) -> bool:
        return bool(self._rumors)

    def __len__(self) -> int:
        return len(self._rumors)

    def put(self, key: str, content: bytes) -> None:
        self._order += 1
        self._rumors[key] = _Rumor(content, self._order)

    def drop(self, key: str) -> None:
        self._rumors.pop(key, None)

    def take(self, room: int, transmits: int) -> list[bytes]:
        """What fits into `room` bytes. A piece that was told `transmits` times is not told again."""
        return list(self._fitting(room, transmits)) if self._rumors else []

    def _fitting(self, room: int, transmits: int) -> Iterator[bytes]:
        for key, rumor in sorted(self._rumors.items(), key=lambda item: (item[1].told, -item[1].order)):
            if len(rumor.content) > room:
                continue
            room -= len(rumor.content)
            rumor.told += 1
            if rumor.told >= transmits:
                del self._rumors[key]
            yield rumor.content
