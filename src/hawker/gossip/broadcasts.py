"""The broadcast queue: news that rides on other packets, each piece a limited number of times, the least sent first.

One piece a key, the newest wins (memberlist's `TransmitLimitedQueue`; SWIM, 4.1, "infection-style dissemination").
"""

from collections.abc import Iterator

_LEAST_BYTES = 16
_MISFITS = 32


class BroadcastQueue:
    """Bounded by what it is told of: members and operators' commands, which are bounded themselves. Taking costs what
    is taken, however much waits."""

    def __init__(self) -> None:
        self._tiers: list[dict[str, bytes]] = [{}]  # by how often it was told, the newest last
        self._tier_of: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._tier_of)

    def __len__(self) -> int:
        return len(self._tier_of)

    def put(self, key: str, content: bytes) -> None:
        self.drop(key)
        self._place(key, content, 0)

    def drop(self, key: str) -> None:
        tier = self._tier_of.pop(key, None)
        if tier is not None:
            del self._tiers[tier][key]

    def take(self, room: int, transmits: int) -> list[bytes]:
        """Pieces that fit into `room` bytes. A piece is dropped after it was taken `transmits` times."""
        if not self._tier_of:
            return []
        taken = list(self._fitting(room))
        for tier, key, content in reversed(taken):
            self.drop(key)
            if tier + 1 < transmits:
                self._place(key, content, tier + 1)
        return [content for _, _, content in taken]

    def _fitting(self, room: int) -> Iterator[tuple[int, str, bytes]]:
        """Ends once hardly anything can fit, or too much did not."""
        misfits = 0
        for tier, pieces in enumerate(self._tiers):
            for key in reversed(pieces):
                content = pieces[key]
                if len(content) <= room:
                    room -= len(content)
                    yield tier, key, content
                else:
                    misfits += 1
                if room < _LEAST_BYTES or misfits > _MISFITS:
                    return

    def _place(self, key: str, content: bytes, tier: int) -> None:
        while len(self._tiers) <= tier:
            self._tiers.append({})
        self._tiers[tier][key] = content
        self._tier_of[key] = tier
