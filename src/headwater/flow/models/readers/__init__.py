"""Readers: text out of what people write, one module a kind; each is imported when its kind is first read."""
