"""The command line: options, messages, errors."""
