"""Which secrets a config names. Pure."""

from collections.abc import Iterable, Iterator

from hawker.config.machine import MachineConfig
from hawker.config.process import File, MachineSecret


def in_files(config: MachineConfig) -> Iterator[tuple[str, str]]:
    """Path in the config and name of each secret whose base64 text is the content of a file."""
    yield from _in_files("", config.files or ())
    for number, container in enumerate(config.containers or ()):
        yield from _in_files(f"containers[{number}].", container.files or ())


def in_processes(config: MachineConfig) -> Iterator[tuple[str, str]]:
    """The same of the secrets that processes and containers ask for by name."""
    for index, process in enumerate(config.processes or ()):
        yield from _asked(f"processes[{index}]", process.secrets or ())
    for index, container in enumerate(config.containers or ()):
        yield from _asked(f"containers[{index}]", container.secrets or ())


def _in_files(path: str, files: Iterable[File]) -> Iterator[tuple[str, str]]:
    for index, file in enumerate(files):
        if file.secret_name:
            yield f"{path}files[{index}].secret_name", file.secret_name


def _asked(path: str, secrets: Iterable[MachineSecret]) -> Iterator[tuple[str, str]]:
    for place, secret in enumerate(secrets):
        yield f"{path}.secrets[{place}]", secret.name or secret.env_var or ""
