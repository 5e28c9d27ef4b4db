"""How `soak` tries to break the queue, and how it knows whether it did: one module an idea.

``handlers`` are the jobs, ``flowing`` makes chains and batches of them, ``producing`` dispatches all, ``watching`` is
the database driver that tells of every reservation; all write to the ``history``, which is kept apart from the store.
``processes`` starts workers and producers, ``stores`` makes a database of the soak's own, ``disturbing`` kills, stops,
cuts and restarts, ``session`` ties these together. ``checker`` proves the promises from the history and what the store
holds at the end, without touching either, ``flow_rules`` those on chains and batches; ``report`` says what came out.
"""
