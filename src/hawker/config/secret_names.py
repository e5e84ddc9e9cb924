"""Which secrets a config names. Pure."""

from collections.abc import Iterator

from hawker.config.machine import MachineConfig


def in_files(config: MachineConfig) -> Iterator[tuple[str, str]]:
    """Path in the config and name of each secret whose base64 text is the content of a file."""
    for index, file in enumerate(config.files or ()):
        if file.secret_name:
            yield f"files[{index}].secret_name", file.secret_name


def in_processes(config: MachineConfig) -> Iterator[tuple[str, str]]:
    """The same of the secrets that processes ask for by name."""
    for index, process in enumerate(config.processes or ()):
        for place, secret in enumerate(process.secrets or ()):
            yield f"processes[{index}].secrets[{place}]", secret.name or secret.env_var or ""
