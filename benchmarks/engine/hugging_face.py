"""The engine's weights in transformers' model."""

from __future__ import annotations

from typing import Any


def model() -> Any:
    """SmolLM2-135M as ``LlamaForCausalLM`` in fp32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from longpole_engine.models.loader import load

    checkpoint = load("smollm2")
    c, t = checkpoint.config, checkpoint.tensors
    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=c.vocab_size,
            hidden_size=c.hidden_size,
            intermediate_size=c.ffn_size,
            num_hidden_layers=c.num_layers,
            num_attention_heads=c.num_heads,
            num_key_value_heads=c.num_kv_heads,
            head_dim=c.head_dim,
            max_position_embeddings=c.context_tokens,
            rms_norm_eps=c.rms_eps,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_base},
            tie_word_embeddings=True,
        )
    )
    q_rows, kv_rows = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    parts = {
        "model.embed_tokens.weight": t["embed"],
        "lm_head.weight": t["embed"],
        "model.norm.weight": t["norm"],
    }
    for index in range(c.num_layers):
        mine, theirs = f"layers.{index}.", f"model.layers.{index}."
        q, k, v = t[mine + "qkv"].split((q_rows, kv_rows, kv_rows))
        gate, up = t[mine + "gate_up"].split(c.ffn_size)
        for name, value in (
            ("self_attn.q_proj", q),
            ("self_attn.k_proj", k),
            ("self_attn.v_proj", v),
            ("self_attn.o_proj", t[mine + "attn_out"]),
            ("mlp.gate_proj", gate),
            ("mlp.up_proj", up),
            ("mlp.down_proj", t[mine + "down"]),
            ("input_layernorm", t[mine + "attn_norm"]),
            ("post_attention_layernorm", t[mine + "ffn_norm"]),
        ):
            parts[f"{theirs}{name}.weight"] = value
    llama.load_state_dict(parts)
    return llama.eval()
