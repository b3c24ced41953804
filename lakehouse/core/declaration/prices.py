"""The prices of compute and of requests to storage."""

from dataclasses import dataclass

from lakehouse.core.declaration.knobs import AMOUNT, TEXT, check_knobs, knob


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of a vCPU-hour and of storage requests, and the number of vCPUs that are paid.

    The defaults are the prices of AWS Glue and S3 Standard.
    """

    usd_per_vcpu_hour: float = knob(
        0.11, AMOUNT, "one vCPU for an hour (Glue: 0.44 per DPU-hour of 4 vCPUs)"
    )
    vcpus: float = knob(2, AMOUNT, "vCPUs that the driver uses")
    usd_per_1000_puts: float = knob(0.005, AMOUNT, "PUT, COPY, POST, LIST")
    usd_per_1000_gets: float = knob(0.0004, AMOUNT, "GET, HEAD")
    region: str = knob("us-east-1", TEXT, "region of these prices")
    as_of: str = knob("2026-11", TEXT, "month of these prices")

    def __post_init__(self) -> None:
        check_knobs(self)


DEFAULT_PRICES = Prices()
