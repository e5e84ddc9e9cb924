"""What may be ordered, by driver."""

from pathlib import Path

import pytest

from hawker.chaos.scenario_context import SampleMachines, named


@pytest.mark.parametrize(("driver", "on_host"), [("container", False), ("process", True)])
def test_the_sample_runs_from_its_image_or_from_the_host(driver: str, on_host: bool, tmp_path: Path) -> None:
    samples = SampleMachines(driver, "oci:commandless", tmp_path)
    assert (samples.sample().init is not None) == on_host
    assert samples.echo("a")[1:] == ("echo", "a") and samples.broken().init is None


def test_a_volume_is_asked_for_by_a_name_that_it_may_have(tmp_path: Path) -> None:
    samples = SampleMachines("container", "oci:commandless", tmp_path)
    config = samples.with_volume(samples.sample(), "order 12 before")
    assert config.mounts is not None
    assert (config.mounts[0].name, config.mounts[0].path) == (named("order 12 before"), "/data")
    assert " " not in named("order 12 before")
