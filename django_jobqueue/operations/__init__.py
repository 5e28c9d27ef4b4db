"""What people do to queues: every command, page and script calls these, so that all do the same."""
