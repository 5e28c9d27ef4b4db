"""An app whose jobs leave marks; only worker processes of the tests install it."""
