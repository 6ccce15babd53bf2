"""Maintenance: tables and memo kept from drowning in files."""
