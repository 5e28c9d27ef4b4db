"""Edges that need something else than Django and a database, each imported by who uses it."""
