import pytest

from hawker import errors
from hawker.cli.exits import ExitStatus, Failure, hint_of, report, sole_error, status_of
from hawker.errors import HawkerError, NoRoom, NotFound, Unavailable

ROOM = NoRoom("no room", scope="host", shortfall={"memory_mb": 512})


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.BadRequest("x"), ExitStatus.FAILED),
        (errors.Unauthorized("x"), ExitStatus.FAILED),
        (errors.Conflict("x"), ExitStatus.FAILED),
        (errors.DeadlineExceeded("x"), ExitStatus.FAILED),
        (errors.CannotStart("x"), ExitStatus.USAGE),
        (NotFound("x"), ExitStatus.NOT_FOUND),
        (ROOM, ExitStatus.NO_ROOM),
        (Unavailable("x"), ExitStatus.UNAVAILABLE),
    ],
)
def test_each_error_has_its_exit_status(error: HawkerError, status: ExitStatus) -> None:
    assert status_of(error) is status


def test_an_error_is_one_line_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(NotFound("machine\nnot found")) == ExitStatus.NOT_FOUND
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "error: machine not found"
    assert err.splitlines()[1].startswith("hint: see `hawker machine list`")


def test_a_failure_has_a_status_of_its_own_and_no_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(Failure("it does not start", 125)) == 125
    assert capsys.readouterr().err == "error: it does not start\n"


def test_an_error_that_explains_itself_has_no_hint() -> None:
    assert hint_of(errors.BadRequest("x")) is None
    assert hint_of(errors.WrongState("machine 3 is started: stop it first with `hawker machine stop 3`")) is None
    assert hint_of(NotFound("image web is not on this node: see `hawker images list`")) is None


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("run 01M8 not found", "hawker runs list"),
        ("network policy not found", "hawker policies list"),
        ("certificate example.com not found", "hawker certs list"),
        ("ip address '192.0.2.1' not found", "hawker ips list"),
        ("app 'shop' was never deployed here", "hawker deploy"),
    ],
)
def test_an_error_of_a_missing_thing_names_the_list_of_its_kind(text: str, command: str) -> None:
    assert f"`{command}`" in str(hint_of(NotFound(text)))


def test_an_edge_that_is_not_there_is_no_matter_of_a_machines_state() -> None:
    error = errors.WrongState("the edge of this host is not there: it begins with the first machine that needs it")
    assert "--publish" in str(hint_of(error))


def test_a_group_of_one_error_is_that_error() -> None:
    error = NotFound("x")
    assert sole_error(BaseExceptionGroup("", [ExceptionGroup("", [error])])) is error
    assert isinstance(sole_error(BaseExceptionGroup("", [error, Unavailable("y")])), BaseExceptionGroup)


def test_an_image_that_is_not_there_is_not_found() -> None:
    error = errors.BadRequest("failed to get manifest web:3: MANIFEST_UNKNOWN: manifest unknown")
    assert status_of(error) is ExitStatus.NOT_FOUND


def test_a_host_without_room_for_an_update_has_no_room() -> None:
    assert status_of(errors.Conflict("could not reserve resource for machine: insufficient cpu")) is ExitStatus.NO_ROOM


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (errors.WrongState("unable to destroy machine, not currently stopped"), "--force"),
        (errors.WrongState("app 'a' still has 2 machines: destroy them first, or use force=true"), "--force"),
        (errors.WrongState("app 'a' has no free volume 'data': there is none of that name"), "is not lost"),
        (errors.WrongState("app 'a' has no free volume 'data': there is none of that name"), "volumes create NAME"),
        (NotFound("app not found"), "hawker apps create NAME"),
        (NotFound("snapshot vs_nope not found"), "volumes snapshots list"),
        (NoRoom("x (the node does not offer the driver qemu)", scope="region", shortfall={"hosts": 1}), "node show"),
        (NoRoom("x (the node does not have the label a=b)", scope="region", shortfall={"hosts": 1}), "--metadata"),
        (NoRoom("no host in region 'x', the nearest is 'y'", scope="region", shortfall={"hosts": 1}), "node list"),
        (errors.WrongState("machine 3 is suspended"), "machine status"),
        (NoRoom("no node takes it", scope="host", shortfall={}), "place --dry-run"),
        (ROOM, "smaller machine"),
        (errors.WrongState("volume vol_1 is attached to machine 3: stop that machine"), "volumes detach"),
        (errors.WrongState("unable to exec machine from current state: 'stopped'"), "machine start"),
        (errors.Conflict("could not reserve resource for machine: insufficient memory available"), "node show"),
        (errors.Conflict("unique machine name violation, 'web' is taken in app 'shop'"), "another --name"),
        (NotFound("HTTP status 404: no text"), "no node"),
        (NoRoom("no space left", scope="host", shortfall={"disk_mb": 512}), "images prune"),
    ],
)
def test_a_hint_fits_its_case(error: HawkerError, hint: str) -> None:
    assert hint in (hint_of(error) or "")


def test_words_of_the_api_are_not_said(capsys: pytest.CaptureFixture[str]) -> None:
    report(errors.WrongState("volume is busy"))
    assert capsys.readouterr().err == "error: volume is busy\n"
