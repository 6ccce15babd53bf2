"""Backup and restore of catalog and ledger."""
