"""Child processes: what must be kept apart from a worker runs in one, bounded, without secrets, and may be lost."""
