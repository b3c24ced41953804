"""The comparisons behind the sentences of `lakehouse doctor`."""

import pytest

from lakehouse.base.errors import Refused
from lakehouse.doctor.plan import (
    Doubt,
    clock_verdict,
    extension_verdict,
    log_store_verdict,
    region_verdict,
    versions_verdict,
)

CLIENT = {"Spark": "4.2.0", "Delta": "4.4.0"}
DELTA = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def test_a_clock_may_be_off_by_half_a_minute_and_must_not_be_by_more_than_five() -> None:
    assert clock_verdict(-30_000) == "this machine's clock and the storage's differ by 30 s"
    assert isinstance(clock_verdict(30_001), Doubt) and isinstance(clock_verdict(300_000), Doubt)
    with pytest.raises(Refused, match="300 s behind the storage's"):
        clock_verdict(-300_001)


def test_an_unnamed_region_is_the_default_of_s3a() -> None:
    assert region_verdict("b", "us-east-1", None) == "b is in us-east-1, as configured"
    with pytest.raises(Refused, match=r"but AWS_REGION is not set; .* Use AWS_REGION=eu-west-1"):
        region_verdict("b", "eu-west-1", None)
    assert isinstance(region_verdict("b", None, "eu-west-1"), Doubt)


def test_versions_may_differ_in_their_last_number_and_be_unknown() -> None:
    assert versions_verdict({"Spark": "4.2.0", "Delta": None}, CLIENT) == (
        "Spark 4.2.0, Delta unknown"
    )
    assert versions_verdict({"Spark": "4.2.1", "Delta": "4.4.0"}, CLIENT) == Doubt(
        "Spark 4.2.1, Delta 4.4.0; this environment has Spark 4.2.0"
    )
    with pytest.raises(Refused, match=r"Spark runs Delta 4\.3\.0.* Use a server with Delta 4\.4"):
        versions_verdict({"Spark": "4.2.0", "Delta": "4.3.0"}, CLIENT)


def test_deltas_extension_is_found_among_others() -> None:
    assert extension_verdict(f"com.example.Other,{DELTA}", CATALOG) == (
        "Delta's SQL extension and catalog are set"
    )
    with pytest.raises(Refused, match=r"spark\.sql\.extensions is not set\. Start the server with"):
        extension_verdict("", CATALOG)
    with pytest.raises(Refused, match=r"spark_catalog is other\.Catalog"):
        extension_verdict(DELTA, "other.Catalog")


def test_a_log_store_without_conditions_is_a_failure() -> None:
    assert str(log_store_verdict("our.Store", is_conditional=True)).startswith(
        "Spark commits through our.Store"
    )
    with pytest.raises(Refused, match=r"Delta's default log store.*LAKEHOUSE_LOG_STORE=platform"):
        log_store_verdict("", is_conditional=False)
