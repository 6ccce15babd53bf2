"""History: what the lake was, by name."""
