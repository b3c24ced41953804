"""The content of storage, by an inventory of it, held against what the tables' logs say: to the
byte.
"""
