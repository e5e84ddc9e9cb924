"""An image with this host's PostgreSQL server, so that a trial moves a real database. It is made from files of this
host; nothing is downloaded.
"""

import gzip
import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from hawker.chaos.hostile.python_image import add_file, program_of_host, shared_libraries, write_image
from hawker.errors import CannotStart

USER_ID = 999
_INSTALLED = Path("/usr/lib/postgresql")
_SHARED = Path("/usr/share/postgresql")
_PROGRAMS = ("sh", "mkdir", "chown", "rm", "setpriv")
_DIRECTORIES = ("dev", "proc", "sys", "tmp", "run", "data", "root", "var/run/postgresql")
_USERS = f"root:x:0:0:root:/root:/bin/sh\npostgres:x:{USER_ID}:{USER_ID}::/data:/bin/sh\n"
_GROUPS = f"root:x:0:\npostgres:x:{USER_ID}:\n"

SERVE = f"""set -e
bin={{bin}}
mkdir -p /var/run/postgresql
chown {USER_ID}:{USER_ID} /var/run/postgresql
as="setpriv --reuid={USER_ID} --regid={USER_ID} --clear-groups"
if ! test -f /data/db/ready; then
  rm -rf /data/db
  mkdir /data/db
  chown {USER_ID}:{USER_ID} /data/db
  $as $bin/initdb -k -A trust -U postgres --locale=C -E UTF8 -D /data/db
  echo 'host all all all trust' >> /data/db/pg_hba.conf
  $as sh -c ': > /data/db/ready'
fi
exec $as $bin/postgres -D /data/db -c listen_addresses='*' -c dynamic_shared_memory_type=mmap -c shared_buffers=32MB \\
  -c unix_socket_directories=/var/run/postgresql
"""
"""What the machine runs. `ready` is written once the cluster is whole."""


def programs() -> Path:
    """The directory of the newest server's programs. Raises `CannotStart`."""
    found = sorted(_INSTALLED.glob("*/bin/postgres"), key=lambda each: float(each.parts[-3]))
    missing = [name for name in ("pgbench", "psql") if shutil.which(name) is None]
    if not found or missing:
        raise CannotStart("this host has no PostgreSQL with pgbench: install the packages postgresql and its contrib")
    return found[-1].parent


def write_postgres_image(file: Path) -> str:
    """Write the archive to `file`; the command that a machine of it is to run. Raises `CannotStart`."""
    server = programs()
    write_image(file, gzip.compress(_layer(server), compresslevel=1, mtime=0), ("/bin/sh",))
    return SERVE.format(bin=server)


def _layer(server: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in _DIRECTORIES:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(folder)
        for target, source in sorted(_files(server).items()):
            info = archive.gettarinfo(source, target.lstrip("/"))
            info.uid = info.gid = 0
            with source.open("rb") as content:
                archive.addfile(info, content)
        add_file(archive, "etc/passwd", _USERS.encode())
        add_file(archive, "etc/group", _GROUPS.encode())
    return buffer.getvalue()


def _files(server: Path) -> dict[str, Path]:
    """By its path in the image, each file of this host."""
    found = {f"/bin/{name}": program_of_host(name) for name in _PROGRAMS}
    for folder in (server, server.parent / "lib", _SHARED / server.parent.name):
        found |= {str(file): Path(os.path.realpath(file)) for file in _below(folder)}
    linked = [file for file in found.values() if file.suffix == ".so" or os.access(file, os.X_OK)]
    for shared in shared_libraries(linked):
        found[shared] = Path(os.path.realpath(shared))
    return found


def _below(folder: Path) -> Iterator[Path]:
    left_out = ("bitcode", "pgxs")
    for place, names, files in os.walk(folder):
        names[:] = [name for name in names if name not in left_out]
        yield from (each for name in files if (each := Path(place) / name).is_file())
