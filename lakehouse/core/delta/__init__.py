"""A Delta table as its log tells it: snapshot, commits, partition values, deletion vectors, paths,
retention.
"""
