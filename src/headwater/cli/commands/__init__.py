"""One module for each command; none imports anything heavy at its top."""
