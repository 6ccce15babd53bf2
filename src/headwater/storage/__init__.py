"""Keeps data: the parts behind small ports."""
