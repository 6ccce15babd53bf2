"""A private stack of the production parts on this machine, for trying and for testing: Kafka, S3, Postgres, Spark."""
