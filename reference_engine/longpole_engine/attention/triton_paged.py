"""Decoding attention that reads pages in place: a Triton kernel.

A program handles the query heads of one key head of one row over a share of its pages, with a
running softmax (Dao et al. 2022, arXiv:2205.14135); shares are joined afterwards, so that a few
long sequences fill a GPU too (flash-decoding). Imported only where there is a GPU, or with
``TRITON_INTERPRET=1``.
"""

from typing import Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

from longpole_engine.kv.pool import PAGE_TOKENS

_MIN_PROGRAMS = 528
"""Four for each of an H100's or H200's 132 multiprocessors."""


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _rows(
    q: Any,
    memory: Any,
    pages: Any,
    lengths: Any,
    out: Any,
    maxima: Any,
    sums: Any,
    scale: float,
    max_pages: int,
    num_shares: int,
    num_kv_heads: tl.constexpr,
    group: tl.constexpr,
    group_room: tl.constexpr,
    head_dim: tl.constexpr,
    page_tokens: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    head = tl.program_id(1)
    share = tl.program_id(2)
    length = tl.load(lengths + row)
    num_pages = tl.cdiv(length, page_tokens)
    per_share = tl.cdiv(num_pages, num_shares)
    first = share * per_share
    last = tl.minimum(first + per_share, num_pages)
    g = tl.arange(0, group_room)
    d = tl.arange(0, head_dim)
    t = tl.arange(0, page_tokens)
    at_query = ((row * num_kv_heads + head) * group + g[:, None]) * head_dim + d[None, :]
    query = tl.load(q + at_query, mask=g[:, None] < group, other=0.0).to(tl.float32) * scale
    top = tl.full((group_room,), float("-inf"), tl.float32)
    total = tl.zeros((group_room,), tl.float32)
    acc = tl.zeros((group_room, head_dim), tl.float32)
    for number in range(first, last):
        page = tl.load(pages + row * max_pages + number).to(tl.int64)
        at = ((page * page_tokens + t) * 2 * num_kv_heads + head) * head_dim
        keys = tl.load(memory + at[:, None] + d[None, :]).to(tl.float32)
        values = tl.load(memory + at[:, None] + num_kv_heads * head_dim + d[None, :])
        scores = tl.sum(query[:, None, :] * keys[None, :, :], 2)
        scores = tl.where(number * page_tokens + t[None, :] < length, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        weight = tl.exp(scores - new_top[:, None])
        fade = tl.exp(top - new_top)
        total = total * fade + tl.sum(weight, 1)
        part = tl.sum(weight[:, :, None] * values.to(tl.float32)[None, :, :], 1)
        acc = acc * fade[:, None] + part
        top = new_top
    index = (row * num_kv_heads + head) * num_shares + share
    at_out = (index * group_room + g[:, None]) * head_dim + d[None, :]
    tl.store(out + at_out, acc)
    tl.store(maxima + index * group_room + g, top)
    tl.store(sums + index * group_room + g, total)


def attend(q: Tensor, memory: Tensor, pages: Tensor, lengths: Tensor) -> Tensor:
    """What :func:`longpole_engine.attention.tables.gathered` computes, without gathering."""
    num_rows, num_heads, head_dim = q.shape
    num_kv_heads, max_pages = memory.shape[2], pages.shape[1]
    group = num_heads // num_kv_heads
    room = triton.next_power_of_2(group)
    shares = max(1, min(max_pages, _MIN_PROGRAMS // (num_rows * num_kv_heads)))
    shape = (num_rows, num_kv_heads, shares, room)
    out = torch.empty(*shape, head_dim, device=q.device)
    maxima, sums = (torch.empty(shape, device=q.device) for _ in range(2))
    _rows[(num_rows, num_kv_heads, shares)](
        q.contiguous(),
        memory,
        pages,
        lengths,
        out,
        maxima,
        sums,
        head_dim**-0.5,
        max_pages,
        shares,
        num_kv_heads,
        group,
        room,
        head_dim,
        PAGE_TOKENS,
    )
    weight = torch.exp(maxima - maxima.amax(dim=2, keepdim=True))
    joined = (out * weight[..., None]).sum(dim=2)
    joined /= (sums * weight).sum(dim=2)[..., None]
    return joined[:, :, :group].reshape(q.shape).to(q.dtype)
