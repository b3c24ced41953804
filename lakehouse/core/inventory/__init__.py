"""What lies in storage, by an inventory of it, held against what the tables' logs say: to the byte."""
