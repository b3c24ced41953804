"""Proofs on real Spark that `make test` has no time for; `make bench` runs them first."""
