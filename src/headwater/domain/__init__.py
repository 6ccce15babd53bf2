"""What data is: pure values, no I/O."""
