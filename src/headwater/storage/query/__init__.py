"""Query: rows of the tables without a JVM, and SQL that can only read."""
