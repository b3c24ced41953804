"""Longer proofs and measurements than the tests have time for: `make bench`."""
