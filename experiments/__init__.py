"""Experiments with aucmax: not installed, run from the root by ``python -m experiments.run``."""
