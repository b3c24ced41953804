"""Vacuum: what the plan dooms, and Delta dooms too, checked once more and deleted by the thousand."""
