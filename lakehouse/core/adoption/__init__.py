"""Tables that somebody else writes: their addresses, the upkeep that they allow, and the facts
about them before they are adopted.
"""
