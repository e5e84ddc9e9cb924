"""How long flyctl's GraphQL takes beside the REST rows that it stands for: an app with its addresses, and an
organization; on one keep-alive connection, interleaved in one run.

    python bench/front.py [rounds]
"""

import sys

from bench_node import APP, BenchNode, bench_node, timed_ms
from figures import Samples, table

_WARM_UP = 20
_APP = f'{{ app(name: "{APP}") {{ id name organization {{ slug }} ipAddresses {{ nodes {{ address type }} }} }} }}'
_ORGANIZATION = '{ organization(slug: "personal") { id slug name type } }'


def _asked(node: BenchNode, query: str) -> None:
    answer = node.call("POST", "/graphql", {"query": query})
    if "errors" in answer:
        raise RuntimeError(str(answer["errors"]))


def _app_by_rest(node: BenchNode) -> None:
    node.call("GET", f"/v1/apps/{APP}")
    node.call("GET", f"/v1/apps/{APP}/ip_assignments")


def main(rounds: int) -> None:
    ways = {
        "REST: app, addresses": _app_by_rest,
        "GraphQL: app": lambda node: _asked(node, _APP),
        "REST: apps": lambda node: node.call("GET", "/v1/apps"),
        "GraphQL: organization": lambda node: _asked(node, _ORGANIZATION),
    }
    samples: dict[str, list[float]] = {name: [] for name in ways}
    with bench_node("--driver", "process") as node:
        for number in range(rounds + _WARM_UP):
            for name, way in ways.items():
                took = timed_ms(way, node)
                if number >= _WARM_UP:
                    samples[name].append(took)
    rows = [Samples(name, ms) for name, ms in samples.items()]
    print(table(rows[:2], rows[0]))
    print(table(rows[2:], rows[2]))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
