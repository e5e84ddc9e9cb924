import pytest

from hawker.archive.bucket import ArchiveBucket, bucket_of
from hawker.errors import CannotStart


@pytest.mark.parametrize(
    ("setting", "prefix"),
    [("s3://bucket", ""), ("s3://bucket/", ""), ("s3://bucket/a", "a"), ("s3://bucket/a/b/", "a/b")],
)
def test_path_after_the_bucket_is_the_prefix(setting: str, prefix: str) -> None:
    assert bucket_of(setting, None, "r") == ArchiveBucket(name="bucket", prefix=prefix, region="r")


@pytest.mark.parametrize("setting", ["gs://bucket", "s3://", "s3://b/../c", "s3://key@b/a"])
def test_setting_that_is_no_bucket_is_refused(setting: str) -> None:
    with pytest.raises(CannotStart, match="archive"):
        bucket_of(setting, None, None)
