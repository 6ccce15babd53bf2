"""Tables: Iceberg tables, and the one door to them.

Spark reads (`read_table`), appends (`writer`), deletes and compacts (`rewrite_files`). Commits and expiry (`commit`),
tags and branches (`refs`) and readers (`catalog`) need no JVM. Errors of Spark, Iceberg and the catalog end here.
"""
