"""Inventories of a lake's storage: scans storage, and reads the reports of our scans and of AWS.

Reports have the layout of AWS S3 Inventory. Below `<folder>/<source bucket>/<configuration>/` there
are `<stamp>/manifest.json`, `<stamp>/manifest.checksum`, `data/<uuid>.parquet` and
`hive/dt=<stamp>/symlink.txt`.
Source: Amazon S3 user guide, "Locating your inventory list".
"""
