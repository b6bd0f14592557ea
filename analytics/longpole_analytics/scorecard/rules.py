"""What a comparison is asked and by which thresholds it is judged."""

from dataclasses import dataclass
from typing import Final

BETTER: Final = "better"
WORSE: Final = "worse"
EQUIVALENT: Final = "equivalent"
INCONCLUSIVE: Final = "inconclusive"
VERDICTS: Final = (BETTER, EQUIVALENT, WORSE, INCONCLUSIVE)
QUANTILES: Final = (0.5, 0.95, 0.99)
CLUSTERS: Final = ("session_id", "session", "conversation_id", "user_id", "user")
"""Columns that say which requests belong together, the first that is known; else the trace."""
SEED: Final = 20_251_130


@dataclass(frozen=True)
class CardRules:
    """Thresholds of a card; ``[analytics.compare]`` in ``longpole.toml`` sets them.

    Attributes:
        margin: a ratio so near 1 is no difference; also how much cost and p99 may rise.
        accepted_drop: how far the accepted rate may fall, a share.
        quality_drop: how far quality may fall, a share of its scale.
        error_rise: how far the rate of errors may rise, a share.
        timeout_rise: how far the rate of timeouts may rise, a share.
        shorter: outputs shorter by more than this share are told from faster ones.
        mix_shift: share of requests that must be elsewhere for a mix to differ.
        min_common: share of each side that must have a counterpart on the other.
        min_priced: share of requests whose cost must be known.
        min_mean: clusters on each side from which a mean is compared.
        num_resamples: of the bootstrap.
    """

    margin: float = 0.05
    accepted_drop: float = 0.01
    quality_drop: float = 0.01
    error_rise: float = 0.005
    timeout_rise: float = 0.005
    shorter: float = 0.1
    mix_shift: float = 0.05
    min_common: float = 0.5
    min_priced: float = 0.95
    min_mean: int = 20
    num_resamples: int = 2000


@dataclass(frozen=True)
class Plan:
    """What is asked of a comparison.

    Attributes:
        target: the metric that decides.
        quantile: of it; ``None`` is p95, or p50 where a side is too small for p95.
        cluster: column of what is resampled as one; ``None`` is the session, else the trace.
        pair_by: column that says which requests are the same prompt on both sides.
        is_randomised: chance decided which side a request went to: its mix needs no correction.
        is_closed_loop: the load waited for answers, so that tails are not what users see.
        look: 1 for the first look at data that still come in, 2 for the next; ``None`` if they
            are looked at once.
        seed: of the bootstrap.
    """

    target: str = "e2e_ms"
    quantile: float | None = None
    cluster: str | None = None
    pair_by: str | None = None
    is_randomised: bool = False
    is_closed_loop: bool = False
    look: int | None = None
    seed: int = SEED

    @property
    def alpha(self) -> float:
        """Share of wrong intervals that is accepted: 0.05, over all looks together.

        Look k has 0.05 / (k (k + 1)), which adds up to 0.05 whenever one stops. It holds for every
        number of a card. Confidence sequences (Howard & Ramdas, Bernoulli 28, 2022) would be
        narrower for quantiles, but of requests that are independent and that all ended, which
        those of one session and those that timed out are not.
        """
        return 0.05 if self.look is None else 0.05 / (self.look * (self.look + 1))
