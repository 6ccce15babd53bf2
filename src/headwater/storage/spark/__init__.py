"""Spark: its session, its JVM, its jars, and how a cluster gets what it needs."""
