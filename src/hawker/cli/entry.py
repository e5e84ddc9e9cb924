"""Where the `hawker` command begins. The collector of garbage hardly runs meanwhile: imports make none, and looking for
it, also at the exit, took a sixth of a short command's time. A node collects as usual, from where its imports end.

`hawker --help` is a file that `make docs` writes: what would make the page takes three times as long to import. A list
of machines without options is asked for and printed before click is imported, which takes as long as all the rest.
"""

import gc
import os
import sys
from importlib import import_module

_USUAL = gc.get_threshold()
_MANY_OBJECTS = 200_000  # a node imports 115,000
HELP_FILE = os.path.join(os.path.dirname(__file__), "help.txt")
_FAILED = 1
_INTERRUPTED = 130
_STANDARD_OUTPUT = 1
_TRACED = (["chaos"], ["dns"], ["edge-process"], ["presence"], ["sim"])
_LISTS = (["ps"], ["machine", "list"])
HELP_COLUMNS = 80
"""A terminal that is at least so wide shows the file as it is."""


def run() -> int:
    """The exit status of the command."""
    try:
        status = _status()
        if sys.stdout is not None:
            sys.stdout.flush()  # what fails later is told by the interpreter, in its own words
    except OSError as error:
        if gc.get_threshold() == _USUAL or sys.argv[1:3] == ["edge", "serve"] or sys.argv[1:2] in _TRACED:
            raise  # of a process that lasts: where it went wrong is for the journal
        return _told(error)
    return status


def _status() -> int:
    gc.set_threshold(_MANY_OBJECTS)
    if sys.argv[1:] in (["--help"], ["-h"]) and columns() >= HELP_COLUMNS:
        with open(HELP_FILE, encoding="utf-8") as file:
            print(file.read(), end="")
        return 0
    status: int = 0 if _listed() else import_module("hawker.cli.main").main()
    gc.freeze()
    return status


def _told(error: OSError) -> int:
    """The status after an error of the system. A reader who has gone, as `head` goes, wants to hear nothing."""
    if not isinstance(error, BrokenPipeError):
        why = (error.strerror or str(error) or type(error).__name__).lower()
        text = f"{error.filename}: {why}" if error.filename else why
        import_module("hawker.cli.exits").say_error(text)
    os.dup2(os.open(os.devnull, os.O_WRONLY), _STANDARD_OUTPUT)  # what is held is lost, and does not fail once more
    return _FAILED


def collect_as_usual() -> None:
    """For a process that lasts, once its imports are done: these stay, and the collector looks at them no more."""
    gc.freeze()
    gc.set_threshold(*_USUAL)


def _listed() -> bool:
    """Whether a plain list was asked for, and is printed; anything unusual is left to the whole command."""
    if sys.argv[1:] not in _LISTS:
        return False
    try:
        printed: bool = import_module("hawker.cli.listing").print_machines(os.environ)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    return printed


def columns() -> int:
    """Of the terminal, as click asks for them."""
    given = os.environ.get("COLUMNS", "")
    if given.isdigit() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns or HELP_COLUMNS
    except OSError:
        return HELP_COLUMNS
