from prometheus_client import CollectorRegistry

from hawker.observe.families import COMMIT_S, GROUP, LAG_S, REQUEST_S, STEP_S, Families, Family
from hawker.store.writer import GROUP_LIMIT


def test_a_family_has_our_name_its_labels_and_its_registry() -> None:
    registry = CollectorRegistry()
    make = Families(registry)
    make.counter("jobs_total", "Jobs.", "kind").labels("large").inc()
    make.gauge("size_bytes", "Size.").set(3)
    make.histogram("job_seconds", "Time.", (1.0, 2.0)).observe(1.5)
    assert make.made[0] == Family("hawker_jobs_total", "counter", "Jobs.", ("kind",))
    assert [family.kind for family in make.made] == ["counter", "gauge", "histogram"]
    assert registry.get_sample_value("hawker_jobs_total", {"kind": "large"}) == 1
    assert registry.get_sample_value("hawker_size_bytes") == 3
    assert registry.get_sample_value("hawker_job_seconds_bucket", {"le": "2.0"}) == 1


def test_buckets_rise_and_the_largest_group_has_one() -> None:
    for buckets in (COMMIT_S, STEP_S, REQUEST_S, LAG_S, GROUP):
        assert list(buckets) == sorted(set(buckets))
    assert GROUP[-1] == GROUP_LIMIT
