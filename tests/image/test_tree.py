"""Facts about merging layers: what a name means, what wins, what a whiteout hides, what is refused."""

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.image.limits import ImageLimits
from hawker.image.tree import Fifo, FileMeta, FileTree, Node, Symlink, TreeDirectory, TreeError, TreeFile, split_name

_PLAIN = FileMeta(mode=0o644)


def new(limits: ImageLimits | None = None) -> FileTree:
    return FileTree(limits or ImageLimits())


def file(content: int = 1) -> TreeFile:
    return TreeFile(_PLAIN, content, 0)


def folder(mode: int = 0o755) -> TreeDirectory:
    return TreeDirectory(FileMeta(mode=mode))


def link(target: str) -> Symlink:
    return Symlink(_PLAIN, target.encode())


def shape(directory: TreeDirectory, prefix: str = "") -> dict[str, object]:
    """Every name, and what is there: a content's number, a link's target, or the kind."""
    found: dict[str, object] = {}
    for name, (node, _) in directory.children.items():
        path = prefix + name.decode()
        match node:
            case TreeDirectory():
                found |= {path + "/": "dir", **shape(node, path + "/")}
            case TreeFile():
                found[path] = node.content
            case Symlink():
                found[path] = "-> " + node.target.decode()
            case Fifo():
                found[path] = "fifo"
    return found


def merged(*layers: list[tuple[str, Node]]) -> dict[str, object]:
    tree = new()
    for number, layer in enumerate(layers):
        for name, node in layer:
            tree.add(number, name.encode(), node)
    return shape(tree.root)


def test_missing_parents_are_made() -> None:
    assert merged([("a/b/c", file(7))]) == {"a/": "dir", "a/b/": "dir", "a/b/c": 7}


def test_last_entry_of_a_name_wins_whatever_its_type() -> None:
    assert merged([("x", file(1)), ("x", file(2))]) == {"x": 2}
    assert merged([("x", folder()), ("x/y", file()), ("x", file(2))]) == {"x": 2}
    assert merged([("x", file())], [("x", folder()), ("x/y", file(3))]) == {"x/": "dir", "x/y": 3}
    assert merged([("x", link("y"))], [("x", folder())]) == {"x/": "dir"}


def test_directory_over_a_directory_keeps_what_is_in_it_and_takes_the_new_mode() -> None:
    tree = new()
    tree.add(0, b"d", folder(0o755))
    tree.add(0, b"d/f", file())
    tree.add(1, b"d", folder(0o700))
    assert shape(tree.root) == {"d/": "dir", "d/f": 1}
    found = tree.find(b"d")
    assert isinstance(found, TreeDirectory)
    assert found.meta.mode == 0o700


def test_root_entry_sets_the_mode_of_the_root() -> None:
    tree = new()
    tree.add(0, b"./", folder(0o711))
    assert tree.root.meta.mode == 0o711
    with pytest.raises(TreeError, match="root itself"):
        tree.add(0, b"/", file())


def test_names_are_relative_to_the_image_even_when_absolute() -> None:
    assert merged([("/etc/passwd", file(1)), ("./etc//group", file(2))]) == {
        "etc/": "dir",
        "etc/passwd": 1,
        "etc/group": 2,
    }


@pytest.mark.parametrize("name", ["..", "../etc/passwd", "a/../b", "/..", "a/.."])
def test_name_that_leads_upwards_is_refused(name: str) -> None:
    with pytest.raises(TreeError, match=r"leads upwards with \.\."):
        merged([(name, file())])


def test_whiteout_hides_what_lower_layers_had() -> None:
    lower: list[tuple[str, Node]] = [("d/gone", file()), ("d/kept", file(2)), ("t/a/b", file())]
    assert merged(lower, [("d/.wh.gone", file()), (".wh.t", file())]) == {"d/": "dir", "d/kept": 2}


@pytest.mark.parametrize("order", [1, -1])
def test_whiteout_spares_its_own_layer_in_either_order(order: int) -> None:
    top: list[tuple[str, Node]] = [("d/x", file(9)), ("d/.wh.x", file()), ("d/.wh..wh..opq", file())]
    assert merged([("d/x", file(1)), ("d/y", file(2))], top[::order]) == {"d/": "dir", "d/x": 9}


def test_opaque_directory_keeps_only_what_its_own_layer_put_deeper() -> None:
    lower: list[tuple[str, Node]] = [("d/a/old", file()), ("d/b/old", file()), ("e", file(5))]
    top: list[tuple[str, Node]] = [("d/a/new", file(3)), ("d/.wh..wh..opq", file())]
    assert merged(lower, top) == {"d/": "dir", "d/a/": "dir", "d/a/new": 3, "e": 5}


def test_whiteout_of_what_is_not_there_changes_nothing() -> None:
    assert merged([(".wh.x", file()), ("no/such/.wh.y", file())]) == {}


def test_whiteouts_are_never_files_of_the_image() -> None:
    tree = new()
    tree.add(0, b"x", file())
    tree.link(1, b".wh.x", b"anything")
    tree.remove(1, b".wh.x")
    tree.add(1, b".wh..wh.plnk", folder())
    assert shape(tree.root) == {}


@pytest.mark.parametrize("name", [".wh.", ".wh..", ".wh...", ".wh.d/file"])
def test_odd_whiteouts_are_refused(name: str) -> None:
    with pytest.raises(TreeError, match="whiteout"):
        merged([(name, file())])


def test_parent_that_is_a_link_is_followed_within_the_image() -> None:
    lower: list[tuple[str, Node]] = [("usr/lib", folder()), ("lib", link("usr/lib")), ("abs", link("/usr/lib"))]
    assert merged(lower, [("lib/x", file(1)), ("abs/y", file(2))]) == {
        "usr/": "dir",
        "usr/lib/": "dir",
        "usr/lib/x": 1,
        "usr/lib/y": 2,
        "lib": "-> usr/lib",
        "abs": "-> /usr/lib",
    }


def test_link_that_climbs_above_the_root_stays_at_the_root() -> None:
    found = merged([("a/up", link("../../../../etc")), ("a/up/shadow", file(4))])
    assert found == {"a/": "dir", "a/up": "-> ../../../../etc", "etc/": "dir", "etc/shadow": 4}


@pytest.mark.parametrize("links", [[("a", "a")], [("a", "b"), ("b", "a")], [("a", "/a/x")]])
def test_loop_of_links_is_refused(links: list[tuple[str, str]]) -> None:
    with pytest.raises(TreeError, match="loop"):
        merged([*((name, link(target)) for name, target in links), ("a/file", file())])


def test_file_in_the_way_gives_way_to_a_directory() -> None:
    assert merged([("x", file())], [("x/y", file(2))]) == {"x/": "dir", "x/y": 2}


def test_hard_link_is_the_same_file_across_directories_and_layers() -> None:
    tree = new()
    tree.add(0, b"a/one", file(1))
    tree.link(1, b"b/two", b"/a/one")
    assert tree.find(b"a/one") is tree.find(b"b/two")


def test_hard_link_survives_the_removal_of_its_first_name() -> None:
    tree = new()
    tree.add(0, b"one", file(1))
    tree.link(0, b"two", b"one")
    tree.add(1, b".wh.one", file())
    assert shape(tree.root) == {"two": 1}


@pytest.mark.parametrize(("target", "says"), [("nope", "not there"), ("d", "directory"), ("../x", "leads upwards")])
def test_bad_hard_link_is_refused(target: str, says: str) -> None:
    tree = new()
    tree.add(0, b"d/f", file())
    with pytest.raises(TreeError, match=says):
        tree.link(0, b"name", target.encode())


def test_hard_link_to_itself_is_no_change() -> None:
    tree = new()
    tree.add(0, b"f", file(1))
    tree.link(0, b"f", b"f")
    assert shape(tree.root) == {"f": 1}


def test_removed_name_is_gone_from_any_layer() -> None:
    tree = new()
    tree.add(0, b"dev/null", file())
    tree.remove(0, b"dev/null")
    tree.remove(0, b"dev/zero")
    assert shape(tree.root) == {"dev/": "dir"}


def test_limits_are_kept() -> None:
    with pytest.raises(TreeError, match="nested deeper than 3"):
        new(ImageLimits(max_depth=3)).add(0, b"a/b/c/d", file())
    with pytest.raises(TreeError, match="a name of 256 bytes"):
        new().add(0, b"x" * 256, file())


def test_implied_directories_count_as_files_do() -> None:
    tree = new(ImageLimits(max_files=4))
    tree.add(0, b"a/b/c", file())
    tree.add(0, b"a/b", folder(0o700))
    tree.add(0, b"l", link("a/x/y"))
    with pytest.raises(TreeError, match="more than 4 files and directories"):
        tree.add(0, b"l/f", file())


def test_long_names_in_link_targets_are_refused() -> None:
    with pytest.raises(TreeError, match="a name of 300 bytes"):
        merged([("l", link("y" * 300)), ("l/f", file())])


def test_links_that_multiply_the_work_are_refused() -> None:
    tree = new(ImageLimits(max_files=100))
    tree.add(0, b"l", link("a/../" * 800 + "a"))
    with pytest.raises(TreeError, match="too many names"):
        for number in range(100):
            tree.add(0, b"l/%d" % number, file())


def test_find_gives_the_root_and_nothing() -> None:
    tree = new()
    assert tree.find(b"/") is tree.root
    assert tree.find(b"a/b") is None


_NAMES = st.lists(st.sampled_from(["a", "b", "c", ".", "..", ".wh.a", ".wh..wh..opq", "x" * 300]), max_size=4).map(
    "/".join
)
_NODES = st.one_of(st.builds(file), st.builds(folder), _NAMES.filter(bool).map(link))


@given(st.lists(st.tuples(st.integers(0, 2), _NAMES, _NODES), max_size=30))
def test_every_name_in_any_tree_is_plain_and_below_the_root(entries: list[tuple[int, str, Node]]) -> None:
    tree = new(ImageLimits(max_depth=16))
    for layer, name, node in sorted(entries, key=lambda entry: entry[0]):
        try:
            tree.add(layer, name.encode(), node)
        except TreeError:
            continue
    for path in shape(tree.root):
        parts = path.rstrip("/").split("/")
        assert posixpath.normpath(path.rstrip("/")) == path.rstrip("/")
        assert all(part not in ("", ".", "..") and not part.startswith(".wh.") for part in parts)
        assert all(len(part) <= 255 for part in parts)


def test_split_name_drops_empty_parts() -> None:
    assert split_name(b".//a/./b/") == [b"a", b"b"]
