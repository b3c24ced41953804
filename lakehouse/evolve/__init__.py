"""Tables follow their changed declarations."""
