"""The version of the project."""

VERSION = "0.4.0"
