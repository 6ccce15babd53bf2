"""Moves data forward: land, bronze, derive, embed, index; and search."""
