"""How many cores a command may use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aucmax import checks


@contextmanager
def limited_cores(count: int | None) -> Iterator[None]:
    """At most so many for torch, Arrow and scikit-learn; None leaves them what they take."""
    import pyarrow
    from threadpoolctl import threadpool_limits

    from aucmax.threads import threads

    if count is None:
        with threads(None):
            yield
        return
    before = pyarrow.cpu_count()
    with threadpool_limits(checks.count("threads", count)), threads(count):
        pyarrow.set_cpu_count(count)
        try:
            yield
        finally:
            pyarrow.set_cpu_count(before)
