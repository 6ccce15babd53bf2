"""Ledger: the small facts that must be agreed on, in SQLite or Postgres."""
