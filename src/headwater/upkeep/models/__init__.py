"""Models at rest: listed, compared, priced, retired."""
