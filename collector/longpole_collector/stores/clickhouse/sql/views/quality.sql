-- The data-quality ledger: one row per service and dialect, with the share of its model calls that
-- lack a fact, and why.
WITH
    told AS (
        SELECT
            service, dialect, parent_id, finish_reason,
            coalesce(operation, '') <> 'embeddings' AS is_answered,
            coalesce(is_streamed, false) AND is_answered AS is_asked_ttft,
            is_asked_ttft AND ttft_ms IS NULL AS no_ttft,
            is_asked_ttft AND ttft_ms IS NOT NULL AND has(flags, 'ttft_first_event') AS weak_ttft,
            input_tokens IS NULL OR (output_tokens IS NULL AND is_answered) AS no_usage,
            NOT no_usage AND has(flags, 'tokens_estimated') AS weak_usage,
            multiIf(
                error_type IS NOT NULL, 'error',
                stream_state IN ('closed_early', 'abandoned', 'error'), toString(stream_state),
                has(flags, 'incomplete'), 'incomplete',
                has(flags, 'truncated'), 'truncated',
                end_ns IS NULL, 'unfinished',
                has(flags, 'engine_side'), 'engine_side',
                'not_sent'
            ) AS cause,
            cost_usd IS NULL AS no_price,
            multiIf(
                coalesce(response_model, request_model) IS NULL, 'no_model',
                no_usage, 'no_usage',
                'not_priced'
            ) AS price_cause,
            if(has(flags, 'ttft_after_headers'), 'ttft_after_headers', cause) AS ttft_cause
        FROM calls_lean
    ),
    alike AS (
        SELECT
            service, dialect, cause, price_cause, ttft_cause,
            toInt64(count()) AS all_calls,
            toInt64(countIf(is_asked_ttft)) AS all_streamed,
            toInt64(countIf(is_answered)) AS all_answered,
            toInt64(countIf(no_ttft)) AS lack_ttft,
            toInt64(countIf(weak_ttft)) AS lack_content,
            toInt64(countIf(no_usage)) AS lack_usage,
            toInt64(countIf(weak_usage)) AS lack_counted,
            toInt64(countIf(no_price)) AS lack_price,
            toInt64(countIf(parent_id IS NULL)) AS lack_parent,
            toInt64(countIf(is_answered AND finish_reason IS NULL)) AS lack_finish
        FROM told
        GROUP BY service, dialect, cause, price_cause, ttft_cause
    ),
    lacking AS (
        SELECT
            *,
            [
                ('ttft', toString(ttft_cause), lack_ttft),
                ('ttft_content', 'ttft_first_event', lack_content),
                ('usage', toString(cause), lack_usage),
                ('usage_counted', 'tokens_estimated', lack_counted),
                ('price', toString(price_cause), lack_price),
                ('parent', 'root', lack_parent),
                ('finish', toString(cause), lack_finish)
            ] AS parts
        FROM alike
    ),
    ledger AS (
        SELECT
            service, dialect,
            sum(all_calls) AS calls_in_all,
            sum(all_streamed) AS streamed_in_all,
            sum(lack_ttft) / nullIf(streamed_in_all, 0) AS no_ttft,
            sum(lack_content) / nullIf(streamed_in_all, 0) AS weak_ttft,
            sum(lack_usage) / calls_in_all AS no_usage,
            sum(lack_counted) / calls_in_all AS weak_usage,
            sum(lack_price) / calls_in_all AS no_price,
            sum(lack_parent) / calls_in_all AS no_parent,
            sum(lack_finish) / nullIf(sum(all_answered), 0) AS no_finish,
            arrayFlatten(groupArray(parts)) AS told_parts,
            arrayDistinct(arrayMap(part -> (part.1, part.2), told_parts)) AS told_reasons
        FROM lacking
        GROUP BY service, dialect
    )
SELECT
    service,
    dialect,
    calls_in_all AS num_calls,
    streamed_in_all AS num_streamed,
    no_ttft AS no_ttft_ratio,
    weak_ttft AS weak_ttft_ratio,
    no_usage AS no_usage_ratio,
    weak_usage AS weak_usage_ratio,
    no_price AS no_price_ratio,
    no_parent AS no_parent_ratio,
    no_finish AS no_finish_ratio,
    arraySort(
        each -> (-each.num_calls, each.lack, each.reason),
        arrayFilter(
            each -> each.num_calls > 0,
            CAST(
                arrayMap(
                    reason -> (
                        reason.1,
                        reason.2,
                        arraySum(
                            part -> if((part.1, part.2) = reason, part.3, 0),
                            told_parts
                        )
                    ),
                    told_reasons
                )
                AS Array(Tuple(lack String, reason String, num_calls Int64))
            )
        )
    ) AS reasons
FROM ledger
ORDER BY num_calls DESC, service, dialect
