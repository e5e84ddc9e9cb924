"""Files as people write them, and what each becomes: machine configs and what is said. `python -m tests.flytoml.golden`
writes the expected ones anew; read the difference before it is committed."""

from pathlib import Path

import msgspec

from hawker.flytoml.machines import machine_configs
from hawker.flytoml.reader import read_app_config

FOLDER = Path(__file__).parent / "golden"
SUFFIXES = (".toml", ".json", ".yaml")


def files() -> list[Path]:
    return sorted(path for path in FOLDER.iterdir() if path.suffix in SUFFIXES)


def expected(path: Path) -> Path:
    return path.with_name(f"{path.name}.expected")


def outcome(path: Path) -> str:
    """Problems, a line each, and then the machine configs, if there is no error."""
    reading = read_app_config(path.read_text(), path.suffix)
    lines = [problem.line_of(path.name) for problem in reading.problems]
    if reading.config is not None:
        machines = msgspec.json.encode(machine_configs(reading.config, "given:1"))
        lines.append(msgspec.json.format(machines, indent=2).decode())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for each in files():
        expected(each).write_text(outcome(each))
