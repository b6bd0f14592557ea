"""Prices: one flat dated table, and which of its rows a model's name means.

The table ships with the package (``price_data``, see there for origin and licence) and is put
together with a user's own prices. A class of tokens without a price of its own is billed as the
class it is part of: cached and written input as input, a one-hour write as a write, reasoning as
output. Prices are US dollars a million tokens.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

CLASSES: Final = (
    "input",
    "cached_input",
    "cache_write",
    "cache_write_1h",
    "output",
    "reasoning",
    "cache_storage",
    "request",
)
"""What is billed; storage is per million token-hours, requests per million of them."""
STANDARD: Final = "standard"
TIER_NAMES: Final[Mapping[str, str]] = {
    "": STANDARD,
    "auto": STANDARD,
    "default": STANDARD,
    "on_demand": STANDARD,
    "standard_only": STANDARD,
}
"""Tiers by other names."""
PROVIDER_NAMES: Final[Mapping[str, str]] = {
    "x_ai": "x-ai",
    "gcp.gen_ai": "google",
    "azure.ai.openai": "azure",
    "azure.ai.inference": "azure",
    "azure_openai": "azure",
    "hugging_face": "huggingface",
}
"""Names of OpenTelemetry that the table's own rules would not understand."""
_PARENT: Final = {
    "cached_input": "input",
    "cache_write": "input",
    "cache_write_1h": "cache_write",
    "reasoning": "output",
}
_PERIOD: Final = ("valid_from", "valid_to", "from_minute", "to_minute")
_CELL: Final = ("model_key", "service_tier", *_PERIOD)
_COMPACT_DATE: Final = re.compile(r"-(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")
_DATA: Final = Path(__file__).parent / "price_data"


class Name(NamedTuple):
    """One way to be meant: how a name compares (``kind``) and with what."""

    kind: str
    text: str

    def means(self, name: str) -> bool:
        """Whether a lower-case name is meant."""
        match self.kind:
            case "equals":
                return name == self.text
            case "starts_with":
                return name.startswith(self.text)
            case "ends_with":
                return name.endswith(self.text)
            case "contains":
                return self.text in name
        return re.search(self.text, name) is not None


@dataclass(frozen=True)
class Names:
    """Which provider and model a name means, by provider id and in the table's order."""

    providers: Mapping[str, tuple[Name, ...]]
    by_model: Mapping[str, tuple[Name, ...]]
    fallback: Mapping[str, tuple[str, ...]]
    models: Mapping[str, Mapping[str, tuple[Name, ...]]]

    def provider(self, name: str | None, model: str) -> str | None:
        """The provider's id; without a name the one whose models are called so."""
        if not name:
            return _first(self.by_model, model.lower())
        wanted = name.lower().strip()
        wanted = PROVIDER_NAMES.get(wanted, wanted)
        return wanted if wanted in self.providers else _first(self.providers, wanted)

    def key(self, provider: str | None, model: str) -> str | None:
        """``provider/model`` as the table has it; ``None`` if nothing there is meant."""
        if (provider or "").lower() == "litellm" and "/" in model:
            provider, model = model.split("/", 1)
        found = self.provider(provider, model)
        if found is None:
            return None
        for name in dict.fromkeys((model.lower(), _COMPACT_DATE.sub(r"-\1-\2-\3", model.lower()))):
            for home in (found, *self.fallback.get(found, ())):
                meant = _first(self.models.get(home, {}), name)
                if meant is not None:
                    return f"{home}/{meant}"
        return None


def _first(named: Mapping[str, tuple[Name, ...]], name: str) -> str | None:
    return next((key for key, ways in named.items() if any(w.means(name) for w in ways)), None)


@dataclass(frozen=True)
class Prices:
    """A price table in force.

    Attributes:
        cells: a row a model, service tier, period and range of prompt sizes, with the price of
            every class; ``model_key`` is ``provider/model``.
        names: whom the names mean.
        version: of the shipped table.
        own: cells of the user's own prices, which win where they apply.
        own_version: of these; ``None`` without any.
    """

    cells: pl.DataFrame
    names: Names
    version: str
    own: pl.DataFrame = field(default_factory=lambda: cells_of(_no_rows()))
    own_version: str | None = None

    def with_own(self, rows: pl.DataFrame, version: str | None) -> "Prices":
        """The table with these rows as the user's own, in place of any before.

        Args:
            rows: rows as of the shipped table, ``provider`` and ``model`` as the user wrote them.
            version: names them on every cost they give.
        """
        lower = rows.with_columns(pl.col("provider", "model").str.to_lowercase())
        return replace(self, own=cells_of(lower), own_version=version)

    def keys(self, pairs: Iterable[tuple[str | None, str | None]]) -> pl.DataFrame:
        """For each (provider, model) the keys ``model_key`` and ``own_key``, null for unknown."""
        own = set(self.own["model_key"])
        rows = []
        for provider, model in pairs:
            meant = None if not model else self.names.key(provider, model)
            plain = f"{provider}/{model}".lower()
            rows.append((provider, model, meant, _own_key(own, plain, meant)))
        schema = dict.fromkeys(("provider", "model", "model_key", "own_key"), pl.String())
        return pl.DataFrame(rows, schema, orient="row")


def _own_key(own: set[str], plain: str, meant: str | None) -> str | None:
    """The user's own entry: by what the call says, what it means, or the longest start of it."""
    for name in (plain, (meant or "").lower()):
        if name in own:
            return name
    starts = [key for key in own if key.endswith("*") and plain.startswith(key[:-1])]
    return max(starts, key=len, default=None)


@lru_cache(maxsize=1)
def shipped() -> Prices:
    """The price table that came with the package."""
    rows = pl.read_parquet(_DATA / "prices.parquet")
    names = pl.read_parquet(_DATA / "names.parquet")
    return Prices(cells_of(rows), _named(names), (_DATA / "VERSION").read_text().strip())


def _named(rows: pl.DataFrame) -> Names:
    providers: dict[str, list[Name]] = {}
    by_model: dict[str, list[Name]] = {}
    fallback: dict[str, list[str]] = {}
    models: dict[str, dict[str, list[Name]]] = {}
    for scope, provider, model, kind, text in rows.iter_rows():
        match scope:
            case "provider":
                providers.setdefault(provider, []).append(Name(kind, text))
            case "by_model":
                by_model.setdefault(provider, []).append(Name(kind, text))
            case "fallback":
                fallback.setdefault(provider, []).append(text)
            case _:
                of_provider = models.setdefault(provider, {})
                of_provider.setdefault(model, []).append(Name(kind, text))
    return Names(
        {key: tuple(ways) for key, ways in providers.items()},
        {key: tuple(ways) for key, ways in by_model.items()},
        {key: tuple(ids) for key, ids in fallback.items()},
        {
            key: {model: tuple(ways) for model, ways in inner.items()}
            for key, inner in models.items()
        },
    )


def _no_rows() -> pl.DataFrame:
    return pl.DataFrame(schema=PRICE_COLUMNS)


PRICE_COLUMNS: Final[Mapping[str, pl.DataType]] = {
    "provider": pl.String(),
    "model": pl.String(),
    "token_class": pl.String(),
    "service_tier": pl.String(),
    "above_tokens": pl.Int64(),
    "valid_from": pl.Date(),
    "valid_to": pl.Date(),
    "from_minute": pl.Int16(),
    "to_minute": pl.Int16(),
    "usd_per_mtok": pl.Float64(),
    "source": pl.String(),
}
"""A flat price table: a row a class, tier, threshold on the whole prompt, period [from, to) in
UTC days and minutes of the UTC day."""


def cells_of(rows: pl.DataFrame) -> pl.DataFrame:
    """The flat table with the classes side by side, a row for each range of prompt sizes.

    A range is (``above_tokens``, ``up_to_tokens``], the first one from 0 on; ``up_to_tokens`` is
    null for the last. A price without a threshold of its own holds in every range.
    """
    keyed = rows.with_columns(model_key=pl.concat_str(pl.col("provider", "model"), separator="/"))
    wide = keyed.pivot(
        "token_class",
        on_columns=list(CLASSES),
        index=[*_CELL, "above_tokens"],
        values="usd_per_mtok",
        aggregate_function="last",
    ).sort(*_CELL, "above_tokens", nulls_last=False)
    filled = wide.with_columns(pl.col(CLASSES).forward_fill().over(_CELL)).with_columns(
        up_to_tokens=pl.col("above_tokens").shift(-1).over(_CELL)
    )
    for token_class, parent in _PARENT.items():
        filled = filled.with_columns(pl.coalesce(token_class, parent).alias(token_class))
    day_ns = 86_400 * 10**9
    return filled.with_columns(
        (pl.col(name).cast(pl.Int32).cast(pl.Int64) * day_ns).alias(f"{name}_ns")
        for name in ("valid_from", "valid_to")
    ).drop("valid_from", "valid_to")
