"""Vacuum: what the plan dooms, and Delta dooms too, looked at once more and deleted by the thousand."""

from lakehouse.engine.vacuum.facts import Gathered, gather, plan
from lakehouse.engine.vacuum.run import rehearse, vacuum, vacuum_idle

__all__ = ["Gathered", "gather", "plan", "rehearse", "vacuum", "vacuum_idle"]
