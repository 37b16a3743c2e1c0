"""The version of the project, apart from the engine, so that asking for it loads nothing."""

VERSION = "0.2.0"
