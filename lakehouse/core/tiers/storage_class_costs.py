"""The prices of storage classes, with the minimums that S3 bills.

Source: Amazon S3 pricing, notes on storage classes; Amazon S3 user guide, "Understanding and
managing Amazon S3 storage classes".
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPrices:
    """The prices and the minimums of a storage class.

    For each object in an archive class, S3 also bills `overhead_bytes` in the class, and
    `index_bytes` in STANDARD.
    """

    name: str
    usd_per_gb_month: float
    usd_per_1000_transitions: float = 0.0
    usd_per_gb_retrieved: float = 0.0
    minimum_days: int = 0
    minimum_bytes: int = 0
    overhead_bytes: int = 0
    index_bytes: int = 0
