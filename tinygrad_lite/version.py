"""The version of the project."""

VERSION = "0.3.0"
