"""The bills of every provider: its own counts of one call, and the dollars worked out by hand."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace

from longpole.call import Usage
from longpole.providers import _bedrock, _openai_chat, _openai_responses
from longpole.providers.anthropic import _use
from longpole.providers.google_genai import _usage as google_usage
from longpole.providers.mistralai import _read_usage
from longpole.vocab import keys

NOON = int(datetime(2026, 11, 20, 12, 0, tzinfo=UTC).timestamp()) * 10**9
TWO_AM = NOON - 10 * 3600 * 10**9


def told(document):
    return json.loads(json.dumps(document), object_hook=lambda found: SimpleNamespace(**found))


def openai(document):
    return _openai_chat.usage(told(document))._asdict()


def anthropic(document):
    answer = SimpleNamespace(usage=Usage(), facts={}, service_tier=None)
    _use(told(document), answer)
    long = answer.facts.get(keys.CACHE_WRITE_1H_TOKENS)
    return {**answer.usage._asdict(), "cache_write_1h_tokens": long}


def google(document):
    names = ("prompt_token_count", "cached_content_token_count", "candidates_token_count")
    names = (*names, "thoughts_token_count", "tool_use_prompt_token_count")
    return google_usage(SimpleNamespace(**{**dict.fromkeys(names), **document}))._asdict()


def bedrock(document):
    return _bedrock._converse_usage(document)._asdict()


def mistral(document):
    usage = SimpleNamespace(
        prompt_tokens=document["prompt_tokens"],
        completion_tokens=document["completion_tokens"],
        model_fields_set={"prompt_tokens", "completion_tokens"},
        model_extra=document,
    )
    answer = SimpleNamespace(usage=None, service_tier=None)
    _read_usage(usage, answer)
    return answer.usage._asdict()


CHAT = {"prompt_tokens": 2006, "completion_tokens": 300, "total_tokens": 2306}
BILLS = {
    # 982 x 2.50 + 1,024 x 1.25 + 300 x 10.00, a million each
    "openai, writes are free": (
        *("openai", "gpt-4o", {}),
        openai({**CHAT, "prompt_tokens_details": {"cached_tokens": 1024}}),
        0.002455 + 0.00128 + 0.003,
    ),
    # reasoning is inside the output: 500 x 2.50 + 400 x 15.00
    "openai, reasoning is a subset": (
        *("openai", "gpt-5.4", {}),
        openai(
            {
                "prompt_tokens": 500,
                "completion_tokens": 400,
                "total_tokens": 900,
                "completion_tokens_details": {"reasoning_tokens": 350},
            }
        ),
        0.00125 + 0.006,
    ),
    # since 2026-08-21: 1,000 x 4.00 + 6,000 x 0.40 + 3,000 x 5.00 + 100 x 20.00
    "openai 5.6, writes cost 1.25": (
        *("openai", "gpt-5.6-sol", {}),
        _openai_responses._usage(
            told(
                {
                    "input_tokens": 10_000,
                    "output_tokens": 100,
                    "input_tokens_details": {"cached_tokens": 6000, "cache_write_tokens": 3000},
                }
            )
        )._asdict(),
        0.004 + 0.0024 + 0.015 + 0.002,
    ),
    # before it: 5.00, 0.50, 6.25, 30.00
    "openai 5.6, its earlier price": (
        *("openai", "gpt-5.6-sol", {"start_ns": NOON - 120 * 86_400 * 10**9}),
        openai(
            {
                "prompt_tokens": 10_000,
                "completion_tokens": 100,
                "prompt_tokens_details": {"cached_tokens": 6000, "cache_write_tokens": 3000},
            }
        ),
        0.005 + 0.003 + 0.01875 + 0.003,
    ),
    # the whole prompt at twice, output at one and a half: 200,001 x 8 + 72,000 x 0.8 + 10 x 30
    "openai long context": (
        *("openai", "gpt-5.6-sol", {}),
        openai(
            {
                "prompt_tokens": 272_001,
                "completion_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 72_000},
            }
        ),
        1.600008 + 0.0576 + 0.0003,
    ),
    # 272,000 is not above: 200,000 x 4 + 72,000 x 0.4 + 10 x 20
    "openai at the threshold": (
        *("openai", "gpt-5.6-sol", {}),
        openai(
            {
                "prompt_tokens": 272_000,
                "completion_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 72_000},
            }
        ),
        0.8 + 0.0288 + 0.0002,
    ),
    # 982 x 4.25 + 1,024 x 2.125 + 300 x 17.00
    "openai, the priority tier": (
        *("openai", "gpt-4o", {"service_tier": "priority"}),
        openai({**CHAT, "prompt_tokens_details": {"cached_tokens": 1024}}),
        0.0041735 + 0.002176 + 0.0051,
    ),
    # a real call: 1 x 3 + 287 x 3.75 + 30,433 x 0.30 + 67 x 15
    "anthropic, 5 minutes": (
        *("anthropic", "claude-sonnet-4-6", {}),
        anthropic(
            {
                "input_tokens": 1,
                "cache_creation_input_tokens": 287,
                "cache_read_input_tokens": 30_433,
                "output_tokens": 67,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 287,
                    "ephemeral_1h_input_tokens": 0,
                },
            }
        ),
        0.01121415,
    ),
    # the same written for an hour: 287 x 6.00
    "anthropic, 1 hour": (
        *("anthropic", "claude-sonnet-4-6", {}),
        anthropic(
            {
                "input_tokens": 1,
                "cache_creation_input_tokens": 287,
                "cache_read_input_tokens": 30_433,
                "output_tokens": 67,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 0,
                    "ephemeral_1h_input_tokens": 287,
                },
            }
        ),
        0.000003 + 0.001722 + 0.0091299 + 0.001005,
    ),
    # one model reads at 0.05 of its input: 1,000 x 4.00 + 1,000 x 0.20 + 10 x 20.00
    "anthropic, cheaper reads": (
        *("anthropic", "claude-opus-5-5", {}),
        anthropic({"input_tokens": 1000, "cache_read_input_tokens": 1000, "output_tokens": 10}),
        0.004 + 0.0002 + 0.0002,
    ),
    # thoughts beside the answer: 1,000 x 0.30 + 2,000 x 0.03 + (50 + 450) x 2.50
    "google implicit": (
        *("gcp.gemini", "gemini-2.5-flash", {}),
        google(
            {
                "prompt_token_count": 3000,
                "cached_content_token_count": 2000,
                "candidates_token_count": 50,
                "thoughts_token_count": 450,
            }
        ),
        0.0003 + 0.00006 + 0.00125,
    ),
    # 1,000 x 1.25 + 100,000 x 0.125 + 100 x 10 + storage of 100,000 tokens for 2 h at 4.50
    "google explicit, with storage": (
        *("gcp.gemini", "gemini-2.5-pro", {"cache_storage_token_hours": 200_000.0}),
        google(
            {
                "prompt_token_count": 101_000,
                "cached_content_token_count": 100_000,
                "candidates_token_count": 100,
            }
        ),
        0.00125 + 0.0125 + 0.001 + 0.9,
    ),
    # exclusive counts, regional price: 100 x 3.30 + 5,000 x 0.33 + 900 x 4.125 + 20 x 16.50
    "bedrock claude": (
        *("aws.bedrock", "us.anthropic.claude-sonnet-4-6", {}),
        bedrock(
            {
                "inputTokens": 100,
                "outputTokens": 20,
                "totalTokens": 6020,
                "cacheReadInputTokens": 5000,
                "cacheWriteInputTokens": 900,
            }
        ),
        0.00033 + 0.00165 + 0.0037125 + 0.00033,
    ),
    # Nova's writes are plain input: 1,000 x 0.80 + 4,000 x 0.20 + 10 x 3.20
    "bedrock nova": (
        *("aws.bedrock", "amazon.nova-pro-v1:0", {}),
        bedrock(
            {
                "inputTokens": 400,
                "outputTokens": 10,
                "totalTokens": 5010,
                "cacheReadInputTokens": 4000,
                "cacheWriteInputTokens": 600,
            }
        ),
        0.0008 + 0.0008 + 0.000032,
    ),
    # hits and misses at the top level, off-peak: 200 x 0.15 + 800 x 0.003 + 100 x 0.60
    "deepseek": (
        *("deepseek", "deepseek-v4-flash", {}),
        openai(
            {
                "prompt_tokens": 1000,
                "prompt_cache_hit_tokens": 800,
                "prompt_cache_miss_tokens": 200,
                "completion_tokens": 100,
                "total_tokens": 1100,
            }
        ),
        0.00003 + 0.0000024 + 0.00006,
    ),
    # the same at 02:00 UTC is twice
    "deepseek at its peak": (
        *("deepseek", "deepseek-v4-flash", {"start_ns": TWO_AM}),
        openai(
            {
                "prompt_tokens": 1000,
                "prompt_cache_hit_tokens": 800,
                "completion_tokens": 100,
                "total_tokens": 1100,
            }
        ),
        0.00006 + 0.0000048 + 0.00012,
    ),
    # reasoning beside the answer, as the total says: 400 x 3 + 600 x 0.75 + (9 + 291) x 15
    "xai chat, reasoning is additive": (
        *("x_ai", "grok-4", {}),
        openai(
            {
                "prompt_tokens": 1000,
                "completion_tokens": 9,
                "total_tokens": 1300,
                "prompt_tokens_details": {"cached_tokens": 600},
                "completion_tokens_details": {"reasoning_tokens": 291},
            }
        ),
        0.0012 + 0.00045 + 0.0045,
    ),
    # 360 x 0.50 + 640 x 0.05 + 10 x 1.50
    "mistral": (
        *("mistral_ai", "mistral-large-2512", {}),
        mistral(
            {
                "prompt_tokens": 1000,
                "completion_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 640},
            }
        ),
        0.00018 + 0.000032 + 0.000015,
    ),
    # read and write inside the input: 100 x 3 + 600 x 0.30 + 300 x 3.75 + 10 x 15
    "openrouter": (
        *("openrouter", "anthropic/claude-sonnet-4.6", {}),
        openai(
            {
                "prompt_tokens": 1000,
                "completion_tokens": 10,
                "total_tokens": 1010,
                "prompt_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 300},
            }
        ),
        0.0003 + 0.00018 + 0.001125 + 0.00015,
    ),
}
