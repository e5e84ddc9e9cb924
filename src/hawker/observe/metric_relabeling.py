"""Pages of metrics that others expose, made into one page with labels that say whose each series is. Pure text.

The format is Prometheus's text format, 0.0.4, read and written by prometheus_client: a family's series stand together
under one type. What a page says under a label of ours is kept as `exported_...`, as Prometheus itself does it; what it
says under a name of ours, or a label by which Prometheus knows its targets, is dropped: alarms stand on those. How much
a machine may say and how long it may take is bounded by the caller, before the parser sees it.
"""

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from hawker.value_object import ValueObject

Labels = Mapping[str, str]

MOST_SERIES = 5_000  # of one page
_LAST_S = (1 << 63) // 1000  # from 1970 in either direction: times are written as 64 bits of milliseconds
_OURS = ("hawker_", "scrape_", "__", "ALERTS")
_TARGET_LABELS = frozenset({"job", "cluster", "exported_job", "exported_cluster"})


def _is_ours(name: str) -> bool:
    return name == "up" or name.startswith(_OURS)


class MetricsPage(ValueObject, frozen=True):
    """The answer of one endpoint, and the labels that its series are given."""

    text: str
    """The text in Prometheus' text format, as the machine wrote it: nothing of it is trusted."""
    labels: Labels


def read_page(page: MetricsPage) -> list[Metric]:
    """The families of a page, with the labels. Raises `ValueError` when it is not in the format."""
    try:
        families = list(text_string_to_metric_families(page.text))
    except (ValueError, ArithmeticError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"not in Prometheus's text format: {error}") from error
    families = [family for family in families if not _is_ours(family.name)]
    for family in families:
        family.samples = [sample for sample in family.samples if not _is_ours(sample.name)]
    if sum(len(family.samples) for family in families) > MOST_SERIES:
        raise ValueError(f"more than {MOST_SERIES} series")
    if not all(_has_a_time(sample) for family in families for sample in family.samples):
        raise ValueError("a series has a time that cannot be")
    for family in families:
        family.samples = [sample._replace(labels=_labelled(sample.labels, page.labels)) for sample in family.samples]
    return [family for family in families if family.samples]


def _has_a_time(sample: Sample) -> bool:
    """Or says none. What cannot be written, or read by Prometheus, would take the whole page with it."""
    return sample.timestamp is None or -_LAST_S < float(sample.timestamp) < _LAST_S


def one_page(pages: Sequence[Iterable[Metric]]) -> str:
    """Families of one name are joined; where they disagree on help or type, the first page's word goes."""
    merged: dict[str, Metric] = {}
    for page in pages:
        for family in page:
            merged.setdefault(family.name, Metric(family.name, family.documentation, family.type)).samples.extend(
                family.samples
            )
    return generate_latest(_Families(merged.values())).decode()


def _labelled(given: Labels, ours: Labels) -> dict[str, str]:
    said = {name: value for name, value in given.items() if name not in _TARGET_LABELS and not name.startswith("__")}
    kept = {f"exported_{name}" if name in ours else name: value for name, value in said.items()}
    return {**kept, **ours}


class _Families(ValueObject, frozen=True):
    """Looks to the library like a registry."""

    families: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families
