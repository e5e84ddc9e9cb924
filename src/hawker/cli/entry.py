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
_INTERRUPTED = 130
_LISTS = (["ps"], ["machine", "list"])
HELP_COLUMNS = 80
"""A terminal that is at least so wide shows the file as it is."""


def run() -> int:
    """The exit status of the command."""
    if sys.argv[1:] in (["--help"], ["-h"]) and columns() >= HELP_COLUMNS:
        with open(HELP_FILE, encoding="utf-8") as file:
            sys.stdout.write(file.read())
        return 0
    gc.set_threshold(_MANY_OBJECTS)
    status: int = 0 if _listed() else import_module("hawker.cli.main").main()
    gc.freeze()
    return status


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
