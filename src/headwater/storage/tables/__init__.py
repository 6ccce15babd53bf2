"""Tables: Iceberg tables, read, written and committed; the one door to them."""
