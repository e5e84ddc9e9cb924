"""Facts about containers' root filesystems as they are made ready on the host."""

import os
from collections.abc import Callable
from pathlib import Path
from threading import get_ident

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hawker.clock import ManualClock
from hawker.errors import BadRequest, WrongState
from hawker.host.cgroup import Cgroups, find_hierarchies
from hawker.host.mount import mounts
from hawker.host.rmtree import remove_tree
from hawker.ids import MachineId, NodeId
from hawker.runtime import container
from hawker.runtime.container import ContainerTechnology, hand_over, lay_mounts, lay_root, resolve
from hawker.runtime.crun import Crun
from hawker.runtime.launcher.launcher_choice import LauncherChoice
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import MountSpec, ProcessSpec
from tests.runtime.plain import spec

M = MachineId("0123456789abcd")


def web(root: Path, *targets: str) -> ProcessSpec:
    mounts = tuple(MountSpec(source="/somewhere", target=target) for target in targets)
    return ProcessSpec(argv=("true",), env={}, name="web", root=str(root), mounts=mounts)


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("/", "/"),
        ("/a/./b//c", "/a/b/c"),
        ("/../../etc", "/etc"),
        ("/abs/x", "/real/x"),
        ("/rel", "/real"),
        ("/up/x", "/x"),
        ("/chain/x", "/real/x"),
        ("/none/../abs", "/real"),
    ],
)
def test_a_path_leads_where_it_does_for_who_lives_there(tmp_path: Path, path: str, leads_to: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "abs").symlink_to("/real")
    (tmp_path / "rel").symlink_to("real")
    (tmp_path / "up").symlink_to("../../..")
    (tmp_path / "chain").symlink_to("/abs")
    assert resolve(tmp_path, path) == leads_to


def test_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("/one")
    with pytest.raises(BadRequest, match="circle"):
        resolve(tmp_path, "/one/x")


def test_a_path_that_its_links_make_too_long_is_refused_by_its_name(tmp_path: Path) -> None:
    """Each link is as long as a link may be, and leads to the next."""
    (tmp_path / "a").mkdir()
    for number in range(30):
        (tmp_path / f"l{number}").symlink_to("a/../" * 800 + f"l{number + 1}")
    with pytest.raises(BadRequest, match="/l0/x leads by its links over a path of more than 4096 bytes"):
        resolve(tmp_path, "/l0/x")
    with pytest.raises(BadRequest, match="more than 4096 bytes"):
        resolve(tmp_path, "/a" * 2048)
    assert resolve(tmp_path, "/l29/x") == "/l30/x"
    for number in range(39):
        (tmp_path / f"s{number}").symlink_to("a/../" * 5 + f"s{number + 1}")
    assert resolve(tmp_path, "/s0") == "/s39"


def test_a_link_beyond_the_longest_path_of_the_host_is_followed(tmp_path: Path) -> None:
    """The root's own path on the host does not count."""
    deep, fd = 2040, os.open(tmp_path, os.O_RDONLY)
    for _ in range(deep):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.symlink("/real", "l", dir_fd=fd)
    os.close(fd)
    try:
        assert resolve(tmp_path, "/d" * deep + "/l") == "/real"
    finally:
        remove_tree(tmp_path / "d")


_PART = st.sampled_from(["a", "b", "c", "..", "."])
_PATH = st.lists(_PART, min_size=1, max_size=5).map("/".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from("abc"), st.tuples(st.booleans(), _PATH), max_size=3), _PATH)
def test_no_path_leads_out_of_the_root(tmp_path: Path, links: dict[str, tuple[bool, str]], path: str) -> None:
    root = tmp_path / "root"
    for left in root.iterdir() if root.is_dir() else ():
        left.unlink()
    root.mkdir(exist_ok=True)
    for name, (absolute, target) in links.items():
        (root / name).symlink_to("/" * absolute + target)
    try:
        found = resolve(root, "/" + path)
    except BadRequest:
        return
    assert found.startswith("/") and ".." not in found.split("/")
    assert not any(parent.is_symlink() for parent in (root / found[1:], *(root / found[1:]).parents) if parent != root)


def test_a_process_without_a_root_is_as_it_was(tmp_path: Path) -> None:
    plain = msgspec.structs.replace(web(tmp_path), root=None)
    assert lay_root(M, plain) is plain


def test_places_for_the_kernel_s_own_are_made_and_links_there_replaced(tmp_path: Path) -> None:
    (tmp_path / "proc").symlink_to("/etc")
    for _ in range(2):
        lay_root(M, web(tmp_path))
        assert all((tmp_path / name).is_dir() and not (tmp_path / name).is_symlink() for name in ("proc", "dev", "sys"))


def test_mounts_are_told_where_they_truly_go(tmp_path: Path) -> None:
    (tmp_path / "srv").symlink_to("/real")
    laid = lay_root(M, web(tmp_path, "/srv/data", "//plain"))
    assert [mount.target for mount in laid.mounts] == ["/real/data", "/plain"]


@pytest.mark.parametrize("target", ["/", "/proc", "//proc", "/sys/fs", "/dev/shm", "/..", "/link/x"])
def test_nothing_goes_over_the_kernel_s_own(tmp_path: Path, target: str) -> None:
    (tmp_path / "link").symlink_to("/proc")
    with pytest.raises(BadRequest, match="nothing can be mounted"):
        lay_root(M, web(tmp_path, target))


def volumes(*targets: str) -> tuple[MountSpec, ...]:
    return tuple(MountSpec(source="/somewhere", target=target) for target in targets)


def test_volumes_of_a_machine_are_told_where_they_truly_go(tmp_path: Path) -> None:
    (tmp_path / "srv").symlink_to("/real")
    (tmp_path / ".hawker").mkdir()
    (tmp_path / ".hawker/pilot").touch()  # of an instance before, in a root filesystem that is kept
    laid = lay_mounts(tmp_path, volumes("/srv/data", "//plain", "/process"))
    assert [mount.target for mount in laid] == ["/real/data", "/plain", "/process"]


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "//.hawker",
        "/.hawker/pilot",
        "//proc",
        "/sys/fs",
        "/dev",
        "/.fly",
        "/pilot",
        "/kernel/self",
        "/up",
        "/up/.fly",
    ],
)
def test_no_volume_goes_over_the_platform_s_own(tmp_path: Path, target: str) -> None:
    (tmp_path / "pilot").symlink_to("/.hawker")
    (tmp_path / "kernel").symlink_to("proc")
    (tmp_path / "up").symlink_to("../..")
    with pytest.raises(BadRequest, match=f"nothing can be mounted on {target}"):
        lay_mounts(tmp_path, volumes(target))


@pytest.mark.parametrize(("own", "link"), [(".hawker", "/data"), (".hawker/pilot", "/data/pilot"), ("proc", "data/x")])
def test_no_link_leads_the_platform_s_own_below_a_volume(tmp_path: Path, own: str, link: str) -> None:
    (tmp_path / own).parent.mkdir(exist_ok=True)
    (tmp_path / own).symlink_to(link)
    with pytest.raises(BadRequest, match=f"a link to /data.* in the place of the platform's /{own}"):
        lay_mounts(tmp_path, volumes("/data"))
    assert lay_mounts(tmp_path, ()) == (), "without a volume there is nothing to lead it to"


@pytest.mark.anyio
@pytest.mark.parametrize("launcher", LauncherChoice)
async def test_bundle_of_a_machine_has_the_true_place_of_its_volume(tmp_path: Path, launcher: LauncherChoice) -> None:
    root, run = tmp_path / "root", RunDir(tmp_path / "run")
    root.mkdir()
    run.path.mkdir()
    (root / "srv").symlink_to("/really/there")
    (root / "data").symlink_to("/.hawker")
    cgroups = Cgroups(NodeId("0123456789abcdef"), find_hierarchies(mounts()))
    technology = ContainerTechnology(Crun(tmp_path / "crun", cgroups), cgroups, ManualClock(), launcher=launcher)
    given = msgspec.structs.replace(spec("true"), rootfs=str(root), mounts=volumes("/srv/it"))
    await technology.lay_out(given, run)
    (laid,) = (each.read_bytes() for each in run.path.iterdir() if each.name != "pilot")
    assert b"/really/there/it" in laid and b"/srv/it" not in laid
    with pytest.raises(BadRequest, match=r"/data, which is /\.hawker inside"):
        await technology.lay_out(msgspec.structs.replace(given, mounts=volumes("/data")), run)


@pytest.mark.anyio
async def test_an_image_s_files_are_looked_at_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long that takes is up to whoever made the image."""
    root, run, seen = tmp_path / "root", RunDir(tmp_path / "run"), list[int]()
    root.mkdir()
    run.path.mkdir()

    def noting(sound: Callable[..., object]) -> Callable[..., object]:
        def noted(*given: object) -> object:
            seen.append(get_ident())
            return sound(*given)

        return noted

    for name in ("lay_root", "lay_mounts", "hand_over"):
        monkeypatch.setattr(container, name, noting(getattr(container, name)))
    cgroups = Cgroups(NodeId("0123456789abcdef"), find_hierarchies(mounts()))
    technology = ContainerTechnology(Crun(tmp_path / "crun", cgroups), cgroups, ManualClock())
    await technology.lay_out(msgspec.structs.replace(spec("true"), rootfs=str(root), mounts=volumes("/srv/it")), run)
    assert len(seen) == 3 and get_ident() not in seen


def test_a_root_that_is_not_mounted_is_said(tmp_path: Path) -> None:
    with pytest.raises(WrongState, match="not mounted"):
        lay_root(M, web(tmp_path / "nowhere"))


@pytest.fixture
def volume(tmp_path: Path) -> MountSpec:
    """Nobody has used it."""
    source = tmp_path / "volume"
    (source / "lost+found").mkdir(parents=True)
    source.chmod(0o755)
    return MountSpec(source=str(source), target="/var/data", mapped=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Its `/var/data` is a link to a directory of user 105, as the host sees it with ids from 1000 on."""
    root = tmp_path / "root"
    (root / "srv/data").mkdir(parents=True)
    (root / "var").mkdir()
    (root / "var/data").symlink_to("/srv/data")
    os.chown(root / "srv/data", 1105, 1106)
    (root / "srv/data").chmod(0o2750)
    return root


def owner_of(mount: MountSpec) -> tuple[int, int, int]:
    found = os.stat(mount.source)
    return found.st_uid, found.st_gid, found.st_mode & 0o7777


@pytest.mark.root
def test_a_new_volume_gets_the_owner_of_the_image_s_directory(root: Path, volume: MountSpec) -> None:
    hand_over(root, volume, 1000)
    assert owner_of(volume) == (105, 106, 0o750)
    hand_over(root, volume, 0)
    assert owner_of(volume) == (105, 106, 0o750), "it was given away already"


@pytest.mark.root
def test_a_volume_that_was_used_keeps_its_owner(root: Path, volume: MountSpec) -> None:
    used = Path(volume.source) / "a"
    used.touch()
    hand_over(root, volume, 1000)
    used.unlink()
    os.chmod(volume.source, 0o700)
    hand_over(root, volume, 1000)
    assert owner_of(volume) == (0, 0, 0o700)


@pytest.mark.root
@pytest.mark.parametrize("target", ["/nothing/there", "/file", "/circle", "/nobody"])
def test_an_image_without_such_a_directory_changes_nothing(root: Path, volume: MountSpec, target: str) -> None:
    (root / "file").touch()
    (root / "circle").symlink_to("circle")
    (root / "nobody").mkdir()
    os.chown(root / "nobody", 999, 999)  # no id of the machine
    hand_over(root, msgspec.structs.replace(volume, target=target), 1000)
    assert owner_of(volume) == (0, 0, 0o755)


@pytest.mark.root
def test_a_directory_of_the_host_is_never_given_away(root: Path, volume: MountSpec) -> None:
    hand_over(root, msgspec.structs.replace(volume, mapped=False), 1000)
    assert owner_of(volume) == (0, 0, 0o755)


@pytest.mark.root
def test_a_volume_that_was_given_away_is_not_listed(
    root: Path, volume: MountSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have millions of files."""
    hand_over(root, volume, 1000)

    def listed(*_: object) -> None:
        raise AssertionError("it is listed")

    monkeypatch.setattr(os, "listdir", listed)
    monkeypatch.setattr(os, "scandir", listed)
    hand_over(root, volume, 1000)
    assert owner_of(volume) == (105, 106, 0o750)
