"""`hawker worker`: a node without the address for clients, which brokers of its cluster reach at the one for peers."""

from pathlib import Path

import click

from hawker import up
from hawker.up.commands.up import settings_of, settings_options

_HELP = """Run a worker on this host: a node of a cluster that does not answer clients. It needs --advertise, or a data
directory that `hawker join --no-start` has made one of a cluster; brokers run elsewhere (`hawker up`, `hawker broker`).

\b
Examples:
  hawker join 10.0.0.1 --token-file invite --no-start && hawker worker
"""


def _run(config: Path | None, **flags: object) -> int:
    return up.run(settings_of(config, flags), public=False)


command = click.Command("worker", callback=_run, help=_HELP, params=settings_options(unused=("listen",)))
