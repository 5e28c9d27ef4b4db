"""How a job is asked for: the decorator, the handler object it returns, and the dispatch functions."""
