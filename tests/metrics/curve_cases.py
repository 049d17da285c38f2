"""Random rows of two classes, for the tests of the metrics."""

import numpy as np
from hypothesis import strategies as st

SCORES = [
    st.integers(-3, 3).map(float),  # many ties
    st.floats(-1, 1, width=32),
    st.floats(-(2.0**127), 2.0**127, width=32),  # any finite float32: sums of them overflow
]


@st.composite
def rows(draw, columns=1, least=1):
    """Float32 scores in float64, `columns` lists of them, and labels with both classes."""
    labels = draw(st.lists(st.booleans(), max_size=30)) + [True] * least + [False] * least
    values = draw(st.sampled_from(SCORES))
    fixed = st.lists(values, min_size=len(labels), max_size=len(labels))
    return *(np.array(draw(fixed)) for _ in range(columns)), np.array(labels)


@st.composite
def cases(draw, group=False):
    """Scores with ties, labels and weights of both classes, some weights zero."""
    y = np.array([*draw(st.lists(st.booleans(), max_size=20)), True, False])
    n = len(y)
    values = draw(st.sampled_from([st.integers(-3, 3).map(float), st.floats(-1, 1, width=32)]))
    x = np.array(draw(st.lists(values, min_size=n, max_size=n)))
    some = draw(st.sampled_from([st.just(1.0), st.integers(1, 4).map(float), st.floats(0.01, 9)]))
    w = np.array(draw(st.lists(st.one_of(some, st.just(0.0)), min_size=n, max_size=n)))
    w[-2:] = 1.0  # both classes have weight, and in one group
    if not group:
        return x, y.astype(int), w
    g = np.array(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)))
    g[-1] = g[-2]
    return x, y.astype(int), w, g
