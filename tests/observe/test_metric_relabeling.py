import pytest

from hawker.observe.metric_relabeling import MetricsPage, one_page, read_page

WEB = {"app": "web", "instance": "a1"}
API = {"app": "api", "instance": "b2"}


def _join(*pages: MetricsPage) -> list[str]:
    return one_page([read_page(page) for page in pages]).splitlines()


def test_series_are_given_the_labels_of_their_page() -> None:
    text = '# HELP hits Hits.\n# TYPE hits gauge\nhits{path="/a\\"b"} 2 1700000000000\n'
    assert _join(MetricsPage(text, WEB)) == [
        "# HELP hits Hits.",
        "# TYPE hits gauge",
        'hits{app="web",instance="a1",path="/a\\"b"} 2.0 1700000000000',
    ]


def test_a_label_that_is_there_already_is_kept_as_exported() -> None:
    (_, _, series) = _join(MetricsPage('hits{instance="mine"} 1\n', WEB))
    assert series == 'hits{app="web",exported_instance="mine",instance="a1"} 1.0'


def test_families_of_one_name_stand_together_under_one_type() -> None:
    counter = "# TYPE hits_total counter\nhits_total 1\n# TYPE size gauge\nsize 5\n"
    lines = _join(MetricsPage(counter, WEB), MetricsPage(counter, API))
    assert [line for line in lines if "# TYPE" in line] == ["# TYPE hits_total counter", "# TYPE size gauge"]
    first = lines.index('hits_total{app="web",instance="a1"} 1.0')
    assert lines[first + 1] == 'hits_total{app="api",instance="b2"} 1.0'


def test_where_pages_disagree_on_a_type_the_first_one_goes() -> None:
    lines = _join(MetricsPage("# TYPE a gauge\na 1\n", WEB), MetricsPage("a 2\n", API))
    assert [line for line in lines if "# TYPE" in line] == ["# TYPE a gauge"]
    assert len([line for line in lines if line.startswith("a{")]) == 2


def test_a_histogram_keeps_its_buckets_sum_and_count() -> None:
    text = '# TYPE t histogram\nt_bucket{le="1"} 1\nt_bucket{le="+Inf"} 2\nt_sum 3\nt_count 2\n'
    names = [line.partition("{")[0] for line in _join(MetricsPage(text, WEB)) if not line.startswith("#")]
    assert names == ["t_bucket", "t_bucket", "t_sum", "t_count"]


@pytest.mark.parametrize(
    "text", ["<html>", 'a{b="c} 1', "a x", "# TYPE a nonsense\na 1", "é 1", '{a="b"} 1', "\0", "a{" * 1000]
)
def test_page_not_in_the_format_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not in Prometheus"):
        read_page(MetricsPage(text, WEB))


def test_no_pages_are_an_empty_page() -> None:
    assert one_page([]) == ""
    assert one_page([read_page(MetricsPage("# just a remark\n", WEB))]) == ""


FORGED = """\
# TYPE hawker_runs_open gauge
hawker_runs_open{job="hawker",state="stuck"} 7
up 0
scrape_duration_seconds 1
ALERTS{alertname="x"} 1
hits{job="hawker",cluster="prod",exported_job="x",path="/"} 1
"""


def test_a_label_alarms_stand_on_cannot_be_forged() -> None:
    (family,) = read_page(MetricsPage(FORGED, {"app": "alpha"}))
    (sample,) = family.samples
    assert (sample.name, sample.labels) == ("hits", {"app": "alpha", "path": "/"})


def test_a_page_with_too_many_series_is_left_out() -> None:
    with pytest.raises(ValueError, match="more than 5000 series"):
        read_page(MetricsPage("".join(f'a{{n="{n}"}} 1\n' for n in range(5001)), {}))


@pytest.mark.parametrize("at", ["9e999", "-inf", "1" + "0" * 400, "9" * 5000, "9223372036854775808", "-1e300"])
def test_page_with_a_time_that_cannot_be_written_is_refused_and_not_all_pages(at: str) -> None:
    with pytest.raises(ValueError, match=r"not in Prometheus|a time that cannot be"):
        read_page(MetricsPage(f"a 1\na 2 {at}\n", WEB))


def test_page_with_a_far_but_possible_time_is_read() -> None:
    assert _join(MetricsPage("a 1 -9223372036854774\n", WEB))[-1] == 'a{app="web",instance="a1"} 1.0 -9223372036854774'
