"""When does it help? Objectives that rank against likelihoods, compared with equal care."""

from aucmax.extras import needed

with needed("aucmax.study", "all"):
    from aucmax.study.experiment import run_study
    from aucmax.study.page import write_report
    from aucmax.study.settings import find_regime, regimes

__all__ = ["find_regime", "regimes", "run_study", "write_report"]
