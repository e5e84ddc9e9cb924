"""What all tests share: the event loop, the `root` mark, ids that no other run has, and the watch for strays."""

import gc
import os
import re
import signal
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from hawker.host.mount import leave_namespace
from hawker.host.residue import Residue, host, left
from hawker.ids import NodeId
from tests.node_ids import own_node_id
from tests.waiting import wait_for

for profile, examples, always_the_same in (("hawker", 10, True), ("full", 200, False)):
    hypothesis.settings.register_profile(
        profile,
        max_examples=examples,
        derandomize=always_the_same,  # what is right once stays right; `make test-all` looks for what nobody has seen
        deadline=None,  # on a busy machine an example may take any time
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile("hawker")  # `make test-all` says --hypothesis-profile=full
gc.disable()  # until all tests are collected: nothing of them is garbage, and a tenth of the time goes into looking
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so a shell begins what is to run in its background
    signal.signal(signal.SIGINT, signal.default_int_handler)

Mark = Callable[[object], None]

_GONE_WITHIN_S = 240.0  # a host of a street may have a copy of a mount, and with it a loop device, until it ends
_NUMBERED, _RENAMED = r"/pytest-[0-9]+/", r"/garbage-[0-9a-f-]{36}/"
_UNLINKED = " (deleted)"
_HOST_BEFORE = pytest.StashKey[frozenset[Residue]]()
_STRAYS = pytest.StashKey[list[str]]()
_MOUNTS = "hawker_mounts"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any("reason" not in mark.kwargs for mark in item.iter_markers("long")):
            raise pytest.UsageError(f"{item.nodeid} is marked `long` without a reason")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)  # a slow file that came last would leave a core idle
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root"):
                item.add_marker(pytest.mark.skip(reason="needs root: it makes mounts, namespaces or cgroups"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests stay to the end: the collector looks at them no more, which saves a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.collect()  # of nothing: it else waits for a fourth of what is frozen before it looks at what is old again
    gc.enable()


class _Groups(LoadScopeScheduling):  # type: ignore[misc]
    """What one process runs, one after the other: a file, whose tests may share a node, all clients, which share one,
    or all that use the host's own addresses and ports. The drivers' tests are long, and have nothing in common."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        room = file.split("/")[1]
        return {"host": room, "clients": room, "contract": nodeid}.get(room, file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> _Groups:
    return _Groups(config, log)


@pytest.fixture
def node_id() -> NodeId:
    """A node of its own, so that runs beside each other on one host do not meet."""
    return own_node_id()


@pytest.fixture
def nothing_stray(tmp_path: Path) -> Iterator[Mark]:
    """Fails the test if anything that bears its directory, or a mark that it gives (a node's id), outlives it."""
    before = host()
    marks: list[object] = [tmp_path]
    yield marks.append
    strays = _still_there(before, *marks)
    if strays:
        pytest.fail(f"left on the host: {strays}", pytrace=False)


def pytest_configure(config: pytest.Config) -> None:
    """Each process that the tests are divided among has mounts of its own. A container that another one began would
    have a copy of all of them for a moment, and what is given back then stays in use."""
    if _is_part(config) and os.geteuid() == 0:
        leave_namespace()


def pytest_sessionstart(session: pytest.Session) -> None:
    if "CI" in os.environ:  # and not on a developer's host, which other runs may share
        session.config.stash[_HOST_BEFORE] = host()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The whole run leaves the host as it was, and each process of it no mount."""
    config = session.config
    if (before := config.stash.get(_HOST_BEFORE, None)) is None:
        return
    kinds = ("mount",) if _is_part(config) else ()
    strays = [each for each in _still_there(before, kinds=kinds) if not was_there(each, map(str, before))]
    if _is_part(config):
        config.workeroutput[_MOUNTS] = strays  # type: ignore[attr-defined]  # which xdist sends
        return
    config.stash.setdefault(_STRAYS, []).extend(strays)
    if config.stash[_STRAYS]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_testnodedown(node: WorkerController) -> None:
    """Not of one that crashed: its mounts went with it."""
    mounts = getattr(node, "workeroutput", {}).get(_MOUNTS, ())
    node.config.stash.setdefault(_STRAYS, []).extend(mounts)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Last, where the end of a long output is all that is read."""
    for stray in config.stash.get(_STRAYS, []):
        terminalreporter.line(f"left on the host by this run: {stray}")


def was_there(stray: str, before: Iterable[str]) -> bool:
    """Whether an earlier run left it: each run of pytest gives directories of such runs another name before it removes
    them, so what is mounted there has another name each time. None of this run's own are among them."""
    return bool(re.search(_RENAMED, stray)) and _place(stray) in map(_place, before)


def _place(trace: str) -> str:
    """The same for all names that its directory has in its life."""
    return re.sub(f"{_NUMBERED}|{_RENAMED}", "/pytest/", trace).removesuffix(_UNLINKED)


def _is_part(config: pytest.Config) -> bool:
    """Whether this is one of the processes that the tests are divided among."""
    return hasattr(config, "workerinput")


def _still_there(before: frozenset[Residue], *marks: object, kinds: Collection[str] = ()) -> list[str]:
    """What is left once what is on its way out has had time to go; of some kinds only."""

    def strays() -> list[str]:
        return [str(trace) for trace in left(before, *marks) if not kinds or trace.kind in kinds]

    try:
        wait_for(lambda: not strays(), _GONE_WITHIN_S)
    except TimeoutError:
        return strays()
    return []
