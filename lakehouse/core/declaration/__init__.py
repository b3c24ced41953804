"""The words that a user writes: tables, landing, write modes, policies, strategies, windows."""
