"""What `exec` runs in the fake node."""

from typing import Any

import anyio

from hawker.api.contract.exec import Exited, Input, InputEnd, Output, Resize, SendSignal, TerminalRequest
from hawker.api.handlers import SocketChannel


class FakeCommand:
    """`cat`, `both` (a line on each stream), `exit N`, `env`, `signal` (says which one came), `deaf` (says it and goes
    on), `size` (the terminal's, then each new one), `busy` (takes no input), `missing` (cannot be run) and `lost` (the
    node goes)."""

    def __init__(self, channel: SocketChannel[Any, Any], asked: TerminalRequest) -> None:
        self._channel, self._asked = channel, asked

    async def run(self) -> None:
        name, *arguments = self._asked.command
        if name == "lost":
            return
        status, reason = await self._do(name, arguments), "no such file or directory" if name == "missing" else ""
        await self._channel.send(Exited(exit_code=127 if reason else status, signal=0, reason=reason))

    async def _do(self, name: str, arguments: list[str]) -> int:
        match name:
            case "exit":
                return int(arguments[0])
            case "both":
                await self._say(b"out\n")
                await self._say(b"err\n", stream=2)
            case "size":
                await self._say(f"{self._asked.rows}x{self._asked.cols}\n".encode())
                await self._answer_input()
            case "busy":
                await anyio.sleep_forever()
            case "cat" | "signal" | "deaf":
                await self._answer_input()
            case "env":
                await self._say(" ".join(f"{key}={value}" for key, value in sorted(self._asked.env.items())).encode())
        return 0

    async def _answer_input(self) -> None:
        while (message := await self._channel.receive()) is not None:
            match message:
                case Input():
                    if message.data == b"\x04":
                        return
                    await self._say(message.data)
                case Resize():
                    await self._say(f"{message.rows}x{message.cols}\n".encode())
                case SendSignal():
                    await self._say(f"signal {message.signal}\n".encode())
                    if self._asked.command[0] != "deaf":
                        return
                case InputEnd():
                    if self._asked.command[0] not in ("signal", "deaf"):
                        return

    async def _say(self, data: bytes, stream: int = 1) -> None:
        await self._channel.send(Output(stream=stream, data=data))
