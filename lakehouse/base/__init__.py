"""What every room uses: errors, reasons, text, units, settings, the clock and processes."""
