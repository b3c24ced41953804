"""Inventories of a lake's storage: makes our own by a scan, and reads ours and those of AWS.

The layout is that of AWS S3 Inventory. Below `<folder>/<source bucket>/<configuration>/` there are
`<stamp>/manifest.json` and `manifest.checksum`, `data/<uuid>.parquet`, and
`hive/dt=<stamp>/symlink.txt`.
Source: Amazon S3 user guide, "Locating your inventory list".
"""
