"""Log: pointer events on their way, in order, kept for hours."""
