"""How `bench` measures: one module an idea.

``tally`` proves that every job ran once, and when; ``workers`` starts processes behind a gate; ``stores`` knows each
database's raw limit; ``session`` ties these together; ``dispatching``, ``draining`` and ``pickup`` hold the
measurements, which ``measurements`` lists; ``targets``, ``figures`` and ``report`` say what came out;
``profiling`` tells where the time of one job goes.
"""
