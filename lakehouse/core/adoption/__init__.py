"""Tables that somebody else writes: where they lie, what may be done to them, and what is known of them before they are adopted."""
