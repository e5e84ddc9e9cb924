#!/usr/bin/env python3
"""Makes a release directory: wheel, source archive, the pinned requirements, a bill of materials, checksums.

`make release` runs it. The same commit and the same build requirements give the same files: times are the commit's, and
the compiler of the guest program is pinned. Signing is not part of it: sign SHA256SUMS.
"""

import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ("requirements.txt", "requirements-build.txt")
SBOM, SUMS = "hawker.cdx.json", "SHA256SUMS"
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # of URLs, RFC 4122


@dataclass(frozen=True, slots=True)
class Pin:
    """One requirement with the SHA-256 of each file that may be installed for it."""

    name: str
    version: str
    hashes: tuple[str, ...]


def pins(text: str) -> Iterator[Pin]:
    """Of a requirements file. Raises `ValueError` for one without a hash: nothing is installed unchecked."""
    for entry in re.split(r"\n(?=\S)", text.replace("\\\n", " ")):
        found = _PINNED.match(entry)
        if found is None:
            continue
        hashes = tuple(_HASH.findall(entry))
        if not hashes:
            raise ValueError(f"{found[1]} has no hash")
        yield Pin(found[1], found[2], hashes)


def bill_of_materials(version: str, required: list[Pin], epoch: int) -> dict[str, Any]:
    """CycloneDX 1.5. The same for the same input."""
    serial = uuid.uuid5(_NAMESPACE, f"hawker {version} {epoch} {required}")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).isoformat(),
            "component": {"type": "application", "name": "hawker", "version": version, "bom-ref": "hawker"},
        },
        "components": [_component(pin) for pin in required],
        "dependencies": [{"ref": "hawker", "dependsOn": [_purl(pin) for pin in required]}],
    }


def _component(pin: Pin) -> dict[str, Any]:
    """A pin may stand for a file for each platform, so the hashes are properties: a component has one file."""
    properties = [{"name": "hawker:file:sha256", "value": each} for each in pin.hashes]
    return {
        "type": "library",
        "name": pin.name,
        "version": pin.version,
        "purl": _purl(pin),
        "bom-ref": _purl(pin),
        "properties": properties,
    }


def _purl(pin: Pin) -> str:
    return f"pkg:pypi/{pin.name.lower().replace('_', '-')}@{pin.version}"


def checksums(directory: Path) -> str:
    """As `sha256sum --check` reads them."""
    files = sorted(each for each in directory.iterdir() if each.is_file() and each.name != SUMS)
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def release(directory: Path) -> None:
    """Replaces the directory."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    epoch = _commit_time()
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, check=True, cwd=ROOT, env=environ)
    for name in REQUIREMENTS:
        shutil.copyfile(ROOT / name, directory / name)
    version = runpy.run_path(str(ROOT / "src/hawker/version.py"))["VERSION"]
    required = list(pins((ROOT / REQUIREMENTS[0]).read_text()))
    text = json.dumps(bill_of_materials(version, required, epoch), indent=2)
    (directory / SBOM).write_text(f"{text}\n")
    (directory / SUMS).write_text(checksums(directory))


def _commit_time() -> int:
    said = subprocess.run(["git", "log", "-1", "--format=%ct"], check=True, cwd=ROOT, capture_output=True, text=True)
    return int(said.stdout)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "release"
    release(target.resolve())
    print(f"{target}: check it with `sha256sum --check {SUMS}`")
