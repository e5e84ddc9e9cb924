"""Where the programs are that run inside machines, or beside them. The build puts them there (`hatch_build.py`)."""

from pathlib import Path

from hawker.errors import CannotStart

PROGRAMS = Path(__file__).parent / "_guest"


def pilot_path(programs: Path = PROGRAMS) -> Path:
    """Process 1 of every machine: a static program."""
    return _program(programs / "pilot")


def hello_path(programs: Path = PROGRAMS) -> Path:
    """The sample web server that is all of the image `hawker/hello`."""
    return _program(programs / "hello")


def keeper_path(programs: Path = PROGRAMS) -> Path:
    """The companion of a microVM on this host: parent of its monitor, and nothing of it runs inside."""
    return _program(programs / "keeper")


def userns_path(programs: Path = PROGRAMS) -> Path:
    """Holds a user namespace on this host for as long as it takes to map mounts by it."""
    return _program(programs / "userns")


def launcher_path(programs: Path = PROGRAMS) -> Path:
    """Makes the box of a container machine on this host and starts its pilot in it, or crun in its control groups."""
    return _program(programs / "launcher")


def _program(path: Path) -> Path:
    if not path.is_file():
        raise CannotStart(f"the guest program {path.name!r} has not been built; run `make setup`")
    return path
