"""Tends data at rest."""
