"""A program whose event loop is watched, for `test_watchdog`: `python -m tests.observe.watched_loop REPORT_S END_S`.

Does what its standard input says, line by line: `turn` answers, `block SECONDS` holds the loop up (0: for ever), `hold`
does until the next line comes, `log` does in the writing of a log line.
"""

import logging
import sys
import threading
from math import inf

import anyio
from anyio import to_thread

from hawker import log
from hawker.clock import SystemClock
from hawker.observe.metrics import MetricsRegistry, build_metrics
from hawker.observe.watchdog import StallLimits, Watchdog

_PIECE_S = 0.05


class StuckHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        block_the_loop(0)


def block_the_loop(seconds: float) -> None:
    """For so long of the time in which this process runs; a pause of the whole process does not shorten it much."""
    print("blocking", flush=True)
    left = seconds or inf
    while left > 0:
        threading.Event().wait(_PIECE_S)
        left -= _PIECE_S


def hold_the_loop() -> None:
    """The line that ends it is no word."""
    print("blocking", flush=True)
    sys.stdin.readline()


def obey(words: list[str], metrics: MetricsRegistry) -> None:
    match words:
        case ["turn"]:
            print("stalls", metrics.registry.get_sample_value("hawker_event_loop_stalls_total"), flush=True)
        case ["block", seconds]:
            block_the_loop(float(seconds))
        case ["hold"]:
            hold_the_loop()
        case ["log"]:
            logging.getLogger().addHandler(StuckHandler())
            logging.getLogger().error("a line that is never written")


async def main(patience: StallLimits) -> None:
    log.configure()
    metrics = build_metrics("test")
    with Watchdog(SystemClock(), patience, metrics.loop).watching():
        while line := await to_thread.run_sync(sys.stdin.readline):
            obey(line.split(), metrics)


if __name__ == "__main__":
    patience = StallLimits(report_s=float(sys.argv[1]), end_s=float(sys.argv[2]))
    anyio.run(main, patience, backend_options={"use_uvloop": True})
