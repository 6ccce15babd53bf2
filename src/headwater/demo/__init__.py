"""The demonstration lake: generated, real media and a guided tour."""
