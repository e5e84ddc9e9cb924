"""Runs `hawker` and notes which of the project's files are on the call stack when certain functions are called.

    python call_stacks.py FILE ROOM.MODULE:CLASS.FUNCTION ... -- HAWKER ARGUMENT ...

FILE gets a line of JSON for each new stack: the function, its first argument, the files that call each other. A task, a
thread and a request begin anew: who started the process is in none of their stacks.
"""

import functools
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import hawker
from hawker.cli import entry

_SOURCE = str(Path(hawker.__file__).parent) + "/"
_BEGIN_ANEW = frozenset({"_run_coro", "_bootstrap"})  # a task, a thread


def noted(name: str, file: Path, function: Callable[..., Any], seen: set[str]) -> Callable[..., Any]:
    """The function, which notes who calls it."""
    own = function.__code__.co_filename.removeprefix(_SOURCE)

    def note(arguments: tuple[Any, ...]) -> None:
        first = arguments[1] if len(arguments) > 1 else None
        files = list(dict.fromkeys((own, *_files(sys._getframe(2)))))[::-1]
        line = json.dumps([name, str(getattr(first, "name", first))[:200], files])
        if line not in seen:
            seen.add(line)
            with file.open("a") as out:
                out.write(line + "\n")

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*arguments: Any, **named: Any) -> Any:
            note(arguments)
            return await function(*arguments, **named)

        return awaited

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        note(arguments)
        return function(*arguments, **named)

    return called


def _files(frame: FrameType | None) -> Iterator[str]:
    """The innermost first."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_SOURCE):
            yield file.removeprefix(_SOURCE)
        elif frame.f_code.co_name in _BEGIN_ANEW or "/uvicorn/" in file:
            return
        frame = frame.f_back


def main(arguments: list[str]) -> int:
    middle = arguments.index("--")
    file, seen = Path(arguments[0]), set[str]()
    for name in arguments[1:middle]:
        module, _, path = name.partition(":")
        kind, _, method = path.rpartition(".")
        owner = getattr(importlib.import_module(f"hawker.{module}"), kind)
        setattr(owner, method, noted(path, file, getattr(owner, method), seen))
    sys.argv = arguments[middle + 1 :]
    return entry.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
