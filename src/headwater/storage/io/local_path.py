"""A file of a local warehouse, by its path. Light to import: deciding that there is nothing to do needs it."""

import re


def local_path(location: str) -> str:
    """`file:///a`, `file:/a` and `/a` are the same file; Spark and PyIceberg do not always spell it alike."""
    # Not urlparse: Iceberg does not encode, so a # or ? is part of the name.
    return re.sub("^file:(//)?", "", location)
