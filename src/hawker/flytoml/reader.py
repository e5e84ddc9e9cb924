"""A fly.toml, fly.json or fly.yaml from text to a checked app config, with every problem at its place. What is known
and not served is refused by name; nothing is passed over in silence."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hawker.app import app_name
from hawker.config import MachineConfig, complaints
from hawker.config.duration import parse_duration
from hawker.config.effective import PRESETS
from hawker.errors import Unprocessable
from hawker.flytoml.app_config import AppConfig, CheckSection, FileSection, MountSection, SmokeTest
from hawker.flytoml.document import Located, Unreadable, read
from hawker.flytoml.machines import LEAST_CHECK_S, MOST_CHECK_S, machine_configs, of_group, usual_port
from hawker.flytoml.problem import FileProblem, Path, Problems
from hawker.flytoml.shape import plain, shaped
from hawker.value_object import ValueObject

_BUILD = "images are not built here: build it elsewhere and give the image"

OF_HOSTS: Mapping[str, str] = {
    "host_dedication_id": "not served: hosts are not dedicated",
    "vm[].host_dedication_id": "not served: hosts are not dedicated",
    "vm[].required_host_features": "not served: hosts declare no features",
    "deploy.release_command_vm.host_dedication_id": "not served: hosts are not dedicated",
}
"""Keys that say which hosts machines are to be on: refused, but for a lax reading, since machines are the same without
them. A release of flyctl's that has one can be rolled back to and scaled."""

REFUSED: Mapping[str, str] = {
    "services[].script_checks": "not served: a check is tcp or http; machine_checks run a command at a deploy",
    "statics[].tigris_bucket": "not served: files come from the machine itself",
    "machine_config": "not served: write what it says as sections of this file",
    "container": "not served: a machine of this file has one container",
    "experimental.machine_config": "not served: write what it says as sections of this file",
    "experimental.enable_consul": "not served: there is no such database here",
    "experimental.enable_etcd": "not served: there is no such database here",
    "experimental.attached": "not served: there are no extensions here",
}
"""Keys of the current format that ask for something that is not here, `[]` for each item."""

_OF_AN_OLDER_PLATFORM = "no effect: Fly's older platform had it, its Machines do not"

WITHOUT_EFFECT: Mapping[str, str] = {
    "build.builder": _BUILD,
    "build.buildpacks": _BUILD,
    "build.builtin": _BUILD,
    "build.settings": _BUILD,
    "build.compose": _BUILD,
    "experimental.lazy_load_images": "no effect: an image is there as a whole before its machine starts",
    "experimental.allowed_public_ports": _OF_AN_OLDER_PLATFORM,
    "services[].tcp_checks[].restart_limit": _OF_AN_OLDER_PLATFORM,
    "services[].http_checks[].restart_limit": _OF_AN_OLDER_PLATFORM,
}

_WRITTEN_EMPTY = ("processes", "services[].script_checks")
"""Keys that an older flyctl wrote as empty lists into every file; such a list says nothing."""

_OLDER: tuple[tuple[Path, Path], ...] = (
    (("mount",), ("mounts",)),
    (("compute",), ("vm",)),
    (("build", "build_target"), ("build", "build-target")),
    (("experimental", "kill_timeout"), ("kill_timeout",)),
    (("experimental", "metrics_port"), ("metrics", "port")),
    (("experimental", "metrics_path"), ("metrics", "path")),
)
_GROUP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_COMPLAINT = re.compile(r"([A-Za-z_][\w.\[\]-]*?):? (.*)", re.DOTALL)
_PART = re.compile(r"\.?([\w-]+)|\[([0-9]+)\]")
_SECTION = {"guest": "vm", "size": "vm", "stop_config": "kill_timeout", "init": "processes"}
MAX_GROUPS = 64


class Reading(ValueObject, frozen=True):
    """`config` is None when there is an error among the problems, and else what the file says. `document` is the same
    as plain JSON values, in older spellings no more; None when the text could not be read at all."""

    config: AppConfig | None
    problems: tuple[FileProblem, ...]
    document: object = None


def read_app_config(text: str, suffix: str, *, lax: bool = False) -> Reading:
    """`suffix` as for `document.read`. `lax` makes unknown keys, and those of `OF_HOSTS`, warnings."""
    try:
        root = read(text, suffix)
    except Unreadable as error:
        return Reading(None, (FileProblem(error.line, error.column, "", error.text),))
    problems = Problems(root)
    if not isinstance(root.value, dict):
        problems.add((), "wanted a table of keys and sections")
        return Reading(None, problems.sorted())
    for older, current in _OLDER:
        _rename(root, older, current)
    for _, path, table in _places(root, _WRITTEN_EMPTY):
        if table[str(path[-1])].value == []:
            del table[str(path[-1])]
    _take_out(root, REFUSED, problems, warning=False)
    _take_out(root, OF_HOSTS, problems, warning=lax)
    _take_out(root, WITHOUT_EFFECT, problems, warning=True)
    config: AppConfig = shaped(root, AppConfig, problems, lax=lax)
    fits = not problems.errors
    for path, said in _rules(config):
        problems.add(path, said)
    for path, said in _doubts(config):
        problems.add(path, said, warning=True)
    if fits and not problems.errors:
        _check_machines(config, problems)
    return Reading(None if problems.errors else config, problems.sorted(), plain(root))


def configs_of(definition: Mapping[str, object], image: str | None) -> list[MachineConfig]:
    """Of a document as JSON values: one for each process group, and one with each other image that a machine check
    names; none where it cannot be read."""
    config = read_app_config(json.dumps(definition), ".json", lax=True).config
    if config is None:
        return []
    named = {test.image for _, tests in _smoke_tests(config) for test in tests or () if test.image}
    return [*machine_configs(config, image).values(), *(MachineConfig(image=each) for each in sorted(named))]


def _rename(root: Located, older: Path, current: Path) -> None:
    """The current spelling wins where both are there; the other one stays, and is an unknown key."""
    at = _table(root, older[:-1])
    if at is None or older[-1] not in at:
        return
    into = root
    for part in current[:-1]:
        assert isinstance(into.value, dict), "the root and its sections are tables"
        place = at[str(older[-1])]
        into = into.value.setdefault(str(part), Located({}, place.line, place.column))
        if not isinstance(into.value, dict):
            return
    if isinstance(into.value, dict) and current[-1] not in into.value:
        into.value[str(current[-1])] = at.pop(str(older[-1]))


def _table(root: Located, path: Path) -> dict[str, Located] | None:
    node = root
    for part in path:
        if not isinstance(node.value, dict) or part not in node.value:
            return None
        node = node.value[str(part)]
    return node.value if isinstance(node.value, dict) else None


def _take_out(root: Located, keys: Mapping[str, str], problems: Problems, *, warning: bool) -> None:
    for pattern, path, table in _places(root, keys):
        problems.add(path, keys[pattern], warning=warning)
        del table[str(path[-1])]


def _places(root: Located, patterns: Iterable[str]) -> Iterator[tuple[str, Path, dict[str, Located]]]:
    """Where the keys are: the pattern, the path, and the table that has it."""
    for pattern in patterns:
        section, _, key = pattern.rpartition(".")
        for path, table in _tables(root, section.split(".") if section else []):
            if key in table:
                yield pattern, (*path, key), table


def _tables(node: Located, sections: Sequence[str], path: Path = ()) -> Iterator[tuple[Path, dict[str, Located]]]:
    """Those at the end of the sections, each of them where one is a list."""
    if isinstance(node.value, list):
        for index, each in enumerate(node.value):
            if isinstance(each.value, dict):
                yield from _tables(each, sections, (*path, index))
    elif isinstance(node.value, dict) and not sections:
        yield path, node.value
    elif isinstance(node.value, dict) and (inner := node.value.get(name := sections[0].removesuffix("[]"))) is not None:
        yield from _tables(inner, sections[1:], (*path, name))


def _rules(config: AppConfig) -> Iterator[tuple[Path, str]]:
    """What shape cannot say."""
    if config.app is not None:
        try:
            app_name(config.app)
        except Unprocessable as error:
            yield ("app",), str(error)
    if len(config.processes or {}) > MAX_GROUPS:
        yield ("processes",), f"there are more than {MAX_GROUPS} groups"
        return
    for group in config.processes or {}:
        if not _GROUP_NAME.fullmatch(group):
            yield ("processes", group), "a group's name has letters, digits, dashes and underscores, 63 at most"
    yield from _group_rules(config)
    yield from _deploy_rules(config)
    for index, volume in enumerate(config.mounts or ()):
        yield from ((("mounts", index, key), said) for key, said in _volume_rules(volume))
    for index, file in enumerate(config.files or ()):
        yield from ((("files", index), said) for said in _file_rules(file))
    for index, vm in enumerate(config.vm or ()):
        if vm.size is not None and vm.size not in PRESETS:
            yield ("vm", index, "size"), f"there is no such size; the sizes are {', '.join(PRESETS)}"
    for name, probe in (config.checks or {}).items():
        yield from ((("checks", name, *key), said) for key, said in _probe_rules(probe))
    for path, given in (
        (("http_service",), config.http_service),
        *((("services", index), each) for index, each in enumerate(config.services or ())),
    ):
        if given is not None and given.auto_stop_machines not in (None, True, False, "off", "stop", "suspend"):
            yield (*path, "auto_stop_machines"), "wanted true, false, off, stop or suspend"
    for path, tests in _smoke_tests(config):
        for index, test in enumerate(tests or ()):
            if not test.command:
                yield (*path, "machine_checks", index), "it needs a command"


def _smoke_tests(config: AppConfig) -> Iterator[tuple[Path, tuple[SmokeTest, ...] | None]]:
    yield (), config.machine_checks
    if config.http_service is not None:
        yield ("http_service",), config.http_service.machine_checks
    for index, service in enumerate(config.services or ()):
        yield ("services", index), service.machine_checks


def _sections(config: AppConfig) -> Iterator[tuple[Path, tuple[str, ...] | None]]:
    """Each one that may name groups, with those that it names."""
    if config.http_service is not None:
        yield ("http_service",), config.http_service.processes
    for name in ("services", "mounts", "files", "vm", "restart", "metrics"):
        for index, section in enumerate(getattr(config, name) or ()):
            yield (name, index), section.processes
    for name, probe in (config.checks or {}).items():
        yield ("checks", name), probe.processes


def _group_rules(config: AppConfig) -> Iterator[tuple[Path, str]]:
    for path, named in _sections(config):
        for group in named or ():
            if group not in config.groups:
                yield (*path, "processes"), f"there is no process group {group[:80]!r}"
        if config.processes and not named and path[0] in ("http_service", "services"):
            yield path, "it needs processes: the file has process groups"
    for group in config.groups:
        mine = [index for index, each in enumerate(config.mounts or ()) if of_group(each, group, config)]
        for index in mine[1:]:
            yield ("mounts", index), f"group {group!r} has a mount already: a machine has one volume"

    for name, probe in (config.checks or {}).items():
        for group in config.groups:
            if probe.port is None and of_group(probe, group, config) and usual_port(config, group) is None:
                yield ("checks", name), f"it needs a port: group {group!r} has no http_service to take it from"


def _deploy_rules(config: AppConfig) -> Iterator[tuple[Path, str]]:
    given = config.deploy
    if given is None:
        return
    if given.max_unavailable is not None and not 0 < given.max_unavailable < 10**6:
        yield ("deploy", "max_unavailable"), "it must be above 0: a count from 1 on, or a share below it"
    if given.strategy in ("canary", "bluegreen") and config.mounts:
        yield (
            ("deploy", "strategy"),
            f"{given.strategy} makes new machines, which cannot have the volumes of [[mounts]]",
        )
    vm = given.release_command_vm
    if vm is not None and vm.size is not None and vm.size not in PRESETS:
        yield ("deploy", "release_command_vm", "size"), f"there is no such size; the sizes are {', '.join(PRESETS)}"


def _volume_rules(volume: MountSection) -> Iterator[tuple[str, str]]:
    if not volume.source:
        yield "source", "it needs a source: the name of its volumes"
    if not volume.destination:
        yield "destination", "it needs a destination: a path in the machine"
    for key, value, least, most in (
        ("initial_size", volume.initial_size, 1, 10**6),
        ("snapshot_retention", volume.snapshot_retention, 1, 60),
        ("auto_extend_size_threshold", volume.auto_extend_size_threshold, 50, 99),
        ("auto_extend_size_increment", volume.auto_extend_size_increment, 1, 100),
        ("auto_extend_size_limit", volume.auto_extend_size_limit, 1, 500),
    ):
        if value is not None and not least <= value <= most:
            yield key, f"it must be between {least} and {most}, not {value}"


def _file_rules(file: FileSection) -> Iterator[str]:
    if not file.guest_path:
        yield "it needs a guest_path"
    if sum(each is not None for each in (file.local_path, file.raw_value, file.secret_name)) != 1:
        yield "it needs one of local_path, raw_value and secret_name"


def _probe_rules(probe: CheckSection) -> Iterator[tuple[Path, str]]:
    if probe.type is None:
        yield (), "it needs a type: tcp or http"
    if probe.interval is not None and parse_duration(probe.interval) < 2:
        yield ("interval",), f"it must be at least 2s, not {probe.interval}"
    if probe.timeout is not None and parse_duration(probe.timeout) > MOST_CHECK_S:
        yield ("timeout",), f"it must be at most 60s, not {probe.timeout}"


def _doubts(config: AppConfig) -> Iterator[tuple[Path, str]]:
    """What is taken, and may not be meant."""
    if config.build is not None and config.build.image is None and config.build != type(config.build)():
        yield ("build",), _BUILD
    for index, service in enumerate(config.services or ()):
        if not service.ports:
            yield ("services", index), "it has no ports, so nobody reaches it from outside"
    for path, probe in _service_probes(config):
        for key, given in (("interval", probe.interval), ("timeout", probe.timeout)):
            if given is not None and parse_duration(given) < LEAST_CHECK_S:
                yield (*path, key), f"{given} is too short, it becomes 1s"
            elif given is not None and parse_duration(given) > MOST_CHECK_S:
                yield (*path, key), f"{given} is too long, it becomes 1m"


def _service_probes(config: AppConfig) -> Iterator[tuple[Path, CheckSection]]:
    for index, probe in enumerate(config.http_service.checks or () if config.http_service else ()):
        yield ("http_service", "checks", index), probe
    for at, service in enumerate(config.services or ()):
        for key in ("tcp_checks", "http_checks"):
            for index, probe in enumerate(getattr(service, key) or ()):
                yield ("services", at, key, index), probe


def _check_machines(config: AppConfig, problems: Problems) -> None:
    """The rules of machines, each complaint at the section that its field came from, once for all groups."""
    said: set[tuple[Path, str]] = set()
    for group, machine in machine_configs(config).items():
        known = msgspec.structs.replace(machine, image=machine.image or "to-be-given", files=None)
        for complaint in complaints(known):
            path, text = _origin(config, group, complaint)
            if (path, text) not in said:
                said.add((path, text))
                problems.add(path, text)


def _origin(config: AppConfig, group: str, complaint: str) -> tuple[Path, str]:
    found = _COMPLAINT.fullmatch(complaint)
    if found is None:
        return (), complaint
    path: Path = tuple(int(part[2]) if part[2] else part[1] for part in _PART.finditer(found[1]))
    if path[0] == "services" and len(path) > 1:
        origins = _service_origins(config, group)
        index = int(path[1])
        return (*origins[index], *path[2:]) if index < len(origins) else path, found[2]
    if path[0] == "init":
        return ("processes", group), found[2]
    head = _SECTION.get(str(path[0]), path[0])
    return (head, *path[1:]), found[2]


def _service_origins(config: AppConfig, group: str) -> list[Path]:
    """Where each of the group's services stands, in the order in which `machines` makes them."""
    http = config.http_service
    first: list[Path] = [("http_service",)] if http is not None and of_group(http, group, config) else []
    return first + [("services", at) for at, each in enumerate(config.services or ()) if of_group(each, group, config)]
