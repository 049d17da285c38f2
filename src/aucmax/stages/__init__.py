r"""The stages of training and the rules for their step sizes: plain numbers.

A stage :math:`k = 1, 2, \ldots` is a run of optimizer steps at one learning rate around one
reference point. A rule says how long each stage lasts, at which learning rate, and how many fresh
samples set the dual variable when it ends:

==================== ============================= ======================================
rule                 learning rate, length         meant for
==================== ============================= ======================================
:func:`geometric`    / 3, x 3 from stage to stage  practice (Section 5 of the paper)
:func:`polynomial`   / k, x k^2                    PGA (Algorithm 1)
:func:`theory`       Theorem 2 or Theorem 3        problems whose constants are known
:func:`plateau`      / 3 when validation saturates practice (Section 4.3)
==================== ============================= ======================================

Every rule checks its arguments when it is called and gives stages in order; all but
:func:`plateau` give a list, so the steps of a whole run are ``sum(stage.steps for stage in rule)``.
"""

from aucmax.stages._practice import Plateau, geometric, plateau, polynomial
from aucmax.stages._stage import Stage
from aucmax.stages._theory import theory, theory_gamma, theory_stages

__all__ = [
    "Plateau",
    "Stage",
    "geometric",
    "plateau",
    "polynomial",
    "theory",
    "theory_gamma",
    "theory_stages",
]
