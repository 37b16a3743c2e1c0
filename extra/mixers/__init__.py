"""What can mix positions besides attention, and other ways to tell attention where a key is."""
