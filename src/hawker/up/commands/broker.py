"""`hawker broker`: the public front door of a node in a cluster, as a process of its own."""

from pathlib import Path

import click

from hawker.up import broker
from hawker.up.commands.up import settings_of, settings_options

_TAKEN = frozenset({"config", "data_dir", "listen", "log_level", "rate_limits", "market"})
_HELP = """Answer clients in the name of a node that runs on this host: any number of brokers may, each at an address of
its own. A broker reads the node's catalog, token and keys in its data directory, writes nothing, and needs nothing of
its own.

\b
Examples:
  hawker broker --data-dir ./node --listen 127.0.0.1:8001
"""


def _run(config: Path | None, **flags: object) -> int:
    return broker.run(settings_of(config, flags))


_PARAMS = [option for option in settings_options() if option.name in _TAKEN]

command = click.Command("broker", callback=_run, help=_HELP, params=_PARAMS)
