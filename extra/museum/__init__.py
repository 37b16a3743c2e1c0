"""The museum of silent bugs: faults of public projects, planted into this code while it runs. See docs/museum.md."""
