"""Measurements that take too long for the tests: `make bench`."""
