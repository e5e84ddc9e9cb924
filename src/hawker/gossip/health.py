"""How well this node itself is: the worse, the more patience it has with others (Lifeguard, LHA-Probe)."""


class LocalHealth:
    """0 is well. It scales waiting times by `patience`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.score = 0

    @property
    def patience(self) -> int:
        return self.score + 1

    def worse(self, by: int = 1) -> None:
        self.score = min(self._most, self.score + by)

    def better(self) -> None:
        self.score = max(0, self.score - 1)
