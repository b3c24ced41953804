"""The bytes that landed Parquet and Avro take when they are unpacked, counted before memory holds them.

A dictionary tells a value once and each row refers to it, and a codec makes gigabytes of zeros into kilobytes: a file of 5 KB may unpack to
hundreds of gigabytes.

**Safety properties**
- No part of a Parquet file that is let pass needs more memory than the limit, if the file's footer is true.
- No Avro block is unpacked further than the limit.
"""
