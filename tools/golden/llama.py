"""A Llama of one layer: its linear layers, and its forward pass in f64 with quantized inputs."""

import numpy as np

from .numbers import E4M3_MAX, e4m3_round, e4m3_step

HIDDEN, HEADS, HEAD_DIM, VOCAB, POSITIONS = 128, 4, 32, 64, 64
EPSILON, THETA = 1e-5, 10000.0
GROUP = 128  # inputs per scale of the activation e4m3_token_group128
LAYER = "model.layers.0."


def linear_shapes(intermediate, kv_heads):
    """Name -> (N, K)."""
    kv = kv_heads * HEAD_DIM
    return {LAYER + "self_attn.q_proj": (HIDDEN, HIDDEN),
            LAYER + "self_attn.k_proj": (kv, HIDDEN), LAYER + "self_attn.v_proj": (kv, HIDDEN),
            LAYER + "self_attn.o_proj": (HIDDEN, HIDDEN),
            LAYER + "mlp.gate_proj": (intermediate, HIDDEN),
            LAYER + "mlp.up_proj": (intermediate, HIDDEN),
            LAYER + "mlp.down_proj": (HIDDEN, intermediate)}


def config_of(intermediate, kv_heads, dtype, **more):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": dtype,
            "hidden_size": HIDDEN, "intermediate_size": intermediate, "num_hidden_layers": 1,
            "num_attention_heads": HEADS, "num_key_value_heads": kv_heads, "head_dim": HEAD_DIM,
            "vocab_size": VOCAB, "max_position_embeddings": POSITIONS, "rms_norm_eps": EPSILON,
            "rope_theta": THETA, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
            "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, **more}


class Linear:
    """y = x W^T + b with the input quantized as `activation` says."""

    def __init__(self, weights, bias=None, activation="none", input_scale=None):
        self.weights = weights.astype(np.float64)
        self.bias = None if bias is None else bias.astype(np.float64)
        self.activation = activation
        self.input_scale = input_scale
        self.blocks = []     # of s4s8_block128: (inputs, bits, clip) of each
        self.seen = 0.0      # the largest input so far
        self.margin = np.full(1, 0.5)  # per token of the last call: distance to a rounding boundary

    def codes(self, x):
        """(codes, scale) with x ~ scale * codes; notes the margin."""
        kind = self.activation
        if kind.endswith("_static"):
            scale = np.float64(self.input_scale)
        else:
            largest = np.abs(x).max(-1, keepdims=True)
            scale = largest / (127.0 if kind.startswith("s8") else E4M3_MAX)
        value = x / scale
        step = np.ones_like(value) if kind.startswith("s8") else e4m3_step(value)
        limit = 127.5 if kind.startswith("s8") else E4M3_MAX
        away = np.abs(np.abs(value / step - np.floor(value / step)) - 0.5)
        away = np.where(np.abs(value) > limit + 0.01, 0.5, away)
        self.margin = np.minimum(self.margin, away.reshape(len(x), -1).min(1))
        if kind.startswith("s8"):
            return np.clip(np.rint(value), -128, 127), scale
        return e4m3_round(value), scale

    def block_codes(self, x, bits, clip):
        """(codes, scale) of one block of s4s8_block128; notes the margin."""
        top = 2 ** (bits - 1) - 1
        scale = (clip if bits == 4 else 1.0) * np.abs(x).max(-1, keepdims=True) / top
        value = x / scale
        away = np.abs(np.abs(value - np.floor(value)) - 0.5)
        away = np.where(np.abs(value) > top + 1, 0.5, away)  # beyond the last code
        self.margin = np.minimum(self.margin, away.min(1))
        return np.clip(np.rint(value), -top - 1, top), scale

    def __call__(self, x):
        self.seen = max(self.seen, float(np.abs(x).max()))
        self.margin = np.full(len(x), 0.5)
        if self.activation == "none":
            y = x @ self.weights.T
        elif self.activation == "e4m3_token_group128":
            y = np.zeros((len(x), len(self.weights)))
            for k in range(0, x.shape[1], GROUP):
                codes, scale = self.codes(x[:, k:k + GROUP])
                y += scale * (codes @ self.weights[:, k:k + GROUP].T)
        elif self.activation == "s4s8_block128":
            y = np.zeros((len(x), len(self.weights)))
            for inputs, bits, clip in self.blocks:
                codes, scale = self.block_codes(x[:, inputs], bits, clip)
                y += scale * (codes @ self.weights[:, inputs].T)
        else:
            codes, scale = self.codes(x)
            y = scale * (codes @ self.weights.T)
        return y if self.bias is None else y + self.bias


def rms_norm(x, gain):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * gain


def rotate(x):
    """Rotary embedding of x [tokens, heads, HEAD_DIM], halves rotated."""
    half = HEAD_DIM // 2
    angle = np.arange(len(x))[:, None] * THETA ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    low, high = x[..., :half], x[..., half:]
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)


class Llama:
    """`linears`: name -> Linear; `dense`: name -> f32 array of the other tensors."""

    def __init__(self, linears, dense, kv_heads):
        self.linears, self.kv_heads = linears, kv_heads
        self.dense = {name: array.astype(np.float64) for name, array in dense.items()}

    def attend(self, q, k, v):
        tokens = len(q)
        q = rotate(q.reshape(tokens, HEADS, HEAD_DIM))
        k = rotate(k.reshape(tokens, self.kv_heads, HEAD_DIM))
        v = v.reshape(tokens, self.kv_heads, HEAD_DIM)
        k, v = (np.repeat(a, HEADS // self.kv_heads, 1) for a in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(HEAD_DIM)
        scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("hij,jhd->ihd", weights, v).reshape(tokens, -1)

    def logits(self, tokens):
        """[tokens] -> [tokens, VOCAB]."""
        run = {name.rsplit(".", 1)[1]: linear for name, linear in self.linears.items()}
        embedding = self.dense["model.embed_tokens.weight"]
        x = embedding[np.asarray(tokens)]
        normed = rms_norm(x, self.dense[LAYER + "input_layernorm.weight"])
        attended = self.attend(run["q_proj"](normed), run["k_proj"](normed), run["v_proj"](normed))
        x = x + run["o_proj"](attended)
        normed = rms_norm(x, self.dense[LAYER + "post_attention_layernorm.weight"])
        gate = run["gate_proj"](normed)
        x = x + run["down_proj"](gate / (1 + np.exp(-gate)) * run["up_proj"](normed))
        return rms_norm(x, self.dense["model.norm.weight"]) @ embedding.T

    def margins(self):
        """Per token of the last call, over all quantized inputs."""
        return np.min([linear.margin for linear in self.linears.values()
                       if linear.activation != "none"] or [np.full(1, 0.5)], 0)


def choose_tokens(model, count, rng):
    """`count` different tokens. Where inputs are quantized, each is the one whose inputs stay
    farthest from where rounding changes, given those before it: then f32 and f64 round alike."""
    tokens = []
    if all(linear.activation == "none" for linear in model.linears.values()):
        return [int(t) for t in rng.permutation(VOCAB)[:count]]
    for _ in range(count):
        left = [int(t) for t in rng.permutation(VOCAB) if t not in tokens]
        best = (-1.0, -1)
        for token in left:
            model.logits(tokens + [token])
            best = max(best, (float(model.margins()[-1]), token))
        tokens.append(best[1])
    return tokens
