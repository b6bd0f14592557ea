"""The thresholds of the advisor: ``[analytics.advisor]`` in ``longpole.toml`` overrides them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AdvisorRules:
    """When a rule speaks.

    Attributes:
        min_calls: fewest calls or steps of a kind that are judged.
        min_share: of the traces of a route that must be touched.
        min_saved_ms: mean saving over the traces of the route; below it only money or load counts.
        min_saved_share: the same as a share of the route's median wall time.
        max_advice: so many are replayed and told.
        repeat_within_s: an answer that is asked for again within this may be kept.
        min_repeats: repeated calls of one kind.
        repeat_share: of the calls of one kind.
        label_tokens: an answer of at most so many tokens is a label.
        cheap_ratio: a model at most so dear, by output tokens, is a small one beside another,
        large_usd_per_mtok: if the other's output costs more than so much.
        small_time_share: of a large model's time that a small one is taken to need, where none
            was seen.
        sample_traces: traces of one pattern that are looked at for who needs whom.
        max_patterns: patterns of steps that are looked at, those with most time first.
        pattern_share: of the sampled traces of a pattern that must agree.
        unused_share: of an answer's tokens that nobody used.
        close_share: of streams that the application closed before their end.
        reasoning_share: of an answer's tokens that were reasoning.
        min_reasoning_tokens: in the median.
        dose_ratio: the upper third must have so much more than the lower to be compared.
        dose_points: loss of accepted outcomes, from the upper third to the lower, that is
            tolerated.
        volatile_share: of neighbouring calls whose prompts part early.
        min_lost_tokens: input tokens in the median that might have come from a cache.
        cached_before: share of the input that came from the cache in the better version.
        cached_after: and at most in the worse one.
        min_streamable_tokens: shorter answers need no stream.
        burst_share: of a streamed call's time that is over before its first content, from which
            on its answer came at once.
        burst_tokens: tokens in a chunk that come from a buffer.
        min_reference_tokens: of passages in a prompt, in the upper third.
        least_used: share of branches, or of passages, that the outcome uses; below it, judged by
            the upper end of the interval, they are waste.
        least_hits: the same for guesses.
        least_wins: the same for hedges.
        model_share: of the wall time; a route with less in model calls gains nothing from a
            premium tier.
        cold_share: of the calls that were cold.
        cold_ratio: how much longer they took to their first content.
        new_connection_share: of the calls that had to open a connection.
        hang_ratio: a step so many times its median hangs,
        hang_p95_ratio: if it is also so many times its p95.
        min_hangs: of one kind.
        serial_share: of the calls that began when another request's call had just ended.
        serial_gap_ms: what counts as just.
        serial_wait_ms: median wait of those.
        hold_share: of the time between first and last content in which the application held
            the stream.
        max_calls: calls of a route whose prompts are compared, the latest ones.
    """

    min_calls: int = 20
    min_share: float = 0.01
    min_saved_ms: float = 1.0
    min_saved_share: float = 0.01
    max_advice: int = 20
    repeat_within_s: float = 3600.0
    min_repeats: int = 5
    repeat_share: float = 0.05
    label_tokens: int = 8
    cheap_ratio: float = 0.25
    large_usd_per_mtok: float = 1.5
    small_time_share: float = 0.5
    sample_traces: int = 12
    max_patterns: int = 30
    pattern_share: float = 0.6
    unused_share: float = 0.3
    close_share: float = 0.3
    reasoning_share: float = 0.5
    min_reasoning_tokens: int = 200
    dose_ratio: float = 1.8
    dose_points: float = 0.2
    volatile_share: float = 0.8
    min_lost_tokens: int = 256
    cached_before: float = 0.5
    cached_after: float = 0.25
    min_streamable_tokens: int = 64
    burst_share: float = 0.9
    burst_tokens: float = 8.0
    min_reference_tokens: int = 1500
    least_used: float = 0.3
    least_hits: float = 0.3
    least_wins: float = 0.12
    model_share: float = 0.4
    cold_share: float = 0.03
    cold_ratio: float = 2.0
    new_connection_share: float = 0.5
    hang_ratio: float = 8.0
    hang_p95_ratio: float = 3.0
    min_hangs: int = 3
    serial_share: float = 0.5
    serial_gap_ms: float = 5.0
    serial_wait_ms: float = 20.0
    hold_share: float = 0.3
    max_calls: int = 20_000
