"""Vacuums tables: Delta confirms the planned files, which are checked again and then deleted."""
