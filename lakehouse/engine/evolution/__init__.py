"""Makes tables follow their changed declarations."""
