"""Models at rest: listed, priced, replayed within a budget, compared, activated, retired."""
