"""Tests of the benchmarks and of the study: what they record, the pages, and each once at a size of seconds."""
