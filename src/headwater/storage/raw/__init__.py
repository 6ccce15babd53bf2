"""Raw: immutable bytes under a key, kept once."""
