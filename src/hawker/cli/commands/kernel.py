"""`hawker kernel`: the kernels that microVMs boot. Works on the data directory, whether its node runs or not: a running
one takes up a change at the next start of a machine.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import click
import msgspec

from hawker.api.contract.body import instant
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.output import Form, local, note, output_option, show, show_change, size, table
from hawker.clock import SystemClock
from hawker.errors import CannotStart, NotFound
from hawker.place import Place, default_data_dir
from hawker.runtime.kernel.kernel_import import KernelSource, host_source, import_kernel, import_package, usual_package
from hawker.runtime.kernel.kernel_store import Kernel, KernelStore

_CLOCK = SystemClock()
_NEWEST = "newest"

_data_dir = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="PATH",
    help="The node's data directory; HAWKER_DATA_DIR, or /var/lib/hawker for root.",
)


class KernelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `hawker kernel list`. `used`: machines that start now get it; `lacks`: optional modules."""

    release: str
    """As `uname -r` says it in a machine."""
    used: bool
    origin: str
    """What it was imported from, for people."""
    imported_at: datetime
    size_bytes: int
    """Of the image and its modules on the disk."""
    modules: tuple[str, ...]
    """Names, in the order in which they are loaded."""
    lacks: tuple[str, ...]
    pvh: bool
    """It can be entered as Cloud Hypervisor does, on x86."""
    digest: str
    """By which one import is told from another of the same release."""


@click.group("kernel", no_args_is_help=True)
def command() -> None:
    """Import, list, choose and remove the kernels that microVMs boot.

    A machine gets the newest kernel when it starts, unless another one is chosen. Nothing is installed on the host.

    \b
    Examples:
      hawker kernel import
      hawker kernel import --package linux-image-amd64
      hawker kernel import --image ./bzImage --modules ./lib/modules/6.12.0
      hawker kernel use 6.12.0
      hawker kernel list
    """


@command.command("import")
@click.option("--package", metavar="NAME", help="A kernel package, got with this host's apt.")
@click.option("--image", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A kernel: a vmlinuz, bzImage or vmlinux.")  # fmt: skip
@click.option("--modules", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="With --image: its modules, as in /lib/modules.")  # fmt: skip
@_data_dir
@output_option
def import_one(
    package: str | None, image: Path | None, modules: Path | None, data_dir: Path | None, form: Form
) -> None:
    """Import a kernel for microVMs. This host's own if it has what machines need, else the distribution's for virtual
    machines."""
    if package is not None and image is not None:
        raise click.UsageError("--package and --image exclude each other")
    if (image is None) != (modules is None):
        raise click.UsageError("--image and --modules need each other")
    directory = _place(data_dir).kernels
    os.umask(0o077)
    kernel = _imported(directory, package, image, modules)
    imported = _info(kernel, kernel == KernelStore(directory).current())
    show(imported, form, lambda kernel: f"imported kernel {kernel.release}, {size(kernel.size_bytes)}")
    if kernel.record.lacks:
        note(f"it has no {', no '.join(kernel.record.lacks)}: not every virtual machine monitor can boot it")


def _imported(directory: Path, package: str | None, image: Path | None, modules: Path | None) -> Kernel:
    store, now = KernelStore(directory), _CLOCK.now()
    if image is not None and modules is not None:
        source = KernelSource(image=image.absolute(), modules=modules.absolute(), origin=f"file {image.absolute()}")
        return import_kernel(store, source, note, now)
    own = host_source() if package is None else None
    if own is not None:
        return import_kernel(store, own, note, now)
    return import_package(store, directory, package or usual_package(), note, now)


@command.command("list")
@_data_dir
@output_option
def list_kernels(data_dir: Path | None, form: Form) -> None:
    """List the imported kernels, the newest first."""
    store = KernelStore(_place(data_dir).kernels)
    used = store.current()
    show(tuple(_info(kernel, kernel == used) for kernel in store.list()), form, kernels_table)


def _info(kernel: Kernel, used: bool) -> KernelInfo:
    record = kernel.record
    return KernelInfo(
        release=record.release,
        used=used,
        origin=record.origin,
        imported_at=instant(record.imported_at),
        size_bytes=kernel.size(),
        modules=record.modules,
        lacks=record.lacks,
        pvh=record.pvh,
        digest=record.digest,
    )


def kernels_table(kernels: tuple[KernelInfo, ...]) -> str:
    rows = (
        (each.release, "yes" if each.used else "", local(each.imported_at), size(each.size_bytes), each.origin)
        for each in kernels
    )
    return table(("RELEASE", "USED", "IMPORTED", "SIZE", "ORIGIN"), rows)


@command.command("use")
@click.argument("release")
@_data_dir
@output_option
def use(release: str, data_dir: Path | None, form: Form) -> None:
    """Choose the kernel of microVMs. Machines have it from their next start on; `newest`, the default, is the
    newest."""
    with _kernel_store(data_dir) as store:
        store.choose(None if release == _NEWEST else release)
    show_change(form, None, release=release)


@command.command("remove")
@click.argument("release")
@_data_dir
@output_option
def remove(release: str, data_dir: Path | None, form: Form) -> None:
    """Remove an imported kernel. Machines that run with it continue."""
    with _kernel_store(data_dir) as store:
        store.remove(release)
    show_change(form, None, release=release)


@contextmanager
def _kernel_store(data_dir: Path | None) -> Iterator[KernelStore]:
    place = _place(data_dir)
    try:
        yield KernelStore(place.kernels)
    except NotFound as error:
        raise Failure(str(error), ExitStatus.NOT_FOUND) from error
    except OSError as error:
        raise CannotStart(f"cannot change {place.kernels}: {error.strerror}") from error


def _place(data_dir: Path | None) -> Place:
    return Place((data_dir or Path(os.environ.get("HAWKER_DATA_DIR") or default_data_dir())).absolute())
