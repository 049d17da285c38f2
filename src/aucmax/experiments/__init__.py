"""The paper's experiments, each figure a TOML file beside this one."""

from aucmax.experiments.plan import EXPERIMENTS, Plan, Run
from aucmax.experiments.reproduce import reproduce

__all__ = ["EXPERIMENTS", "Plan", "Run", "reproduce"]
