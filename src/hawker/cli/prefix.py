"""Output of several containers, told apart: each line says whose it is. Pure."""

from hawker.api.contract.node import LogChunk


class Prefix:
    """Remembers, for each stream, whose line is not at its end yet."""

    def __init__(self) -> None:
        self._open: dict[int, str] = {}

    def told(self, chunk: LogChunk) -> bytes:
        """The bytes to write to the chunk's stream. A line that another one breaks into is ended first; the output of a
        machine without containers is as it was."""
        if not chunk.container or not chunk.data:
            return chunk.data
        name, whose = f"{chunk.container} | ".encode(), self._open.pop(chunk.stream, None)
        lines = chunk.data.splitlines(keepends=True)
        before = b"" if whose is None or whose == chunk.container else b"\n"
        first = b"" if whose == chunk.container else name
        if not lines[-1].endswith((b"\n", b"\r")):
            self._open[chunk.stream] = chunk.container
        return before + first + name.join(lines)
