"""The web face: pages, an HTTP API and live progress over the same functions as the command line and Python."""
