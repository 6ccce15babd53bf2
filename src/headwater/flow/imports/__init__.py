"""Imports: tables that people have, row by row, as events. `import_rows.py` is where to begin."""
