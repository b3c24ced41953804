"""A table that is merged into and queried 200 times, under each way to keep its files few: `make study`, docs/internals/study.md."""
