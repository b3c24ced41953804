"""Inventories of a lake's storage: our own scan, and the reports that it or AWS wrote, read back.

Layout, as AWS S3 Inventory has it: `<folder>/<source bucket>/<configuration>/<stamp>/manifest.json`
and `manifest.checksum`, `<folder>/<source bucket>/<configuration>/data/<uuid>.parquet`,
`…/hive/dt=<stamp>/symlink.txt`.
Source: Amazon S3 user guide, "Locating your inventory list".
"""
