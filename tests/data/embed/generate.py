"""Tiny random encoders with vectors computed in float64: `python generate.py` (numpy, safetensors, tokenizers).

bert/: BERT, 2 layers; gemma/: EmbeddingGemma, 6 layers of which the last has no window, and a dense layer. `golden.json`
has texts, tokens and vectors before they are normalized. With a folder of all-MiniLM-L6-v2 as argument only
`minilm.json` is written."""
import json, math, os, sys
import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

TEXTS = ["The cat sat.", "A longer text, of which the window of a layer sees only a part: it goes on and on and on.", "é"]
HERE = os.path.dirname(os.path.abspath(__file__))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


erf = np.vectorize(math.erf)


def bert(w, c, ids):
    def norm(name, x):
        m = x.mean(-1, keepdims=True)
        v = ((x - m) ** 2).mean(-1, keepdims=True)
        return (x - m) / np.sqrt(v + c["layer_norm_eps"]) * w[name + ".weight"] + w[name + ".bias"]

    def lin(name, x):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    n, h = len(ids), c["num_attention_heads"]
    d = c["hidden_size"] // h
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:n]
    x = norm("embeddings.LayerNorm", x + w["embeddings.token_type_embeddings.weight"][0])
    for i in range(c["num_hidden_layers"]):
        p = f"encoder.layer.{i}."
        q, k, v = (lin(p + "attention.self." + s, x).reshape(n, h, d).transpose(1, 0, 2) for s in ("query", "key", "value"))
        a = softmax(q @ k.transpose(0, 2, 1) / math.sqrt(d)) @ v
        a = a.transpose(1, 0, 2).reshape(n, h * d)
        x = norm(p + "attention.output.LayerNorm", x + lin(p + "attention.output.dense", a))
        y = lin(p + "intermediate.dense", x)
        y = 0.5 * y * (1 + erf(y / math.sqrt(2)))
        x = norm(p + "output.LayerNorm", x + lin(p + "output.dense", y))
    return x.mean(0)


def gemma(w, dense, c, ids):
    def norm(name, x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + c["rms_norm_eps"]) * (1 + w[name + ".weight"])

    n, h, kv, d = len(ids), c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    x = w["embed_tokens.weight"][ids] * math.sqrt(c["hidden_size"])
    place = np.arange(n)
    for i, kind in enumerate(c["layer_types"]):
        p = f"layers.{i}."
        base = c["rope_local_base_freq"] if kind == "sliding_attention" else c["rope_theta"]
        angle = place[:, None] * base ** (-np.arange(0, d, 2) / d)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]

        def turn(x):
            a, b = x[..., : d // 2], x[..., d // 2 :]
            return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

        y = norm(p + "input_layernorm", x)
        q = (y @ w[p + "self_attn.q_proj.weight"].T).reshape(n, h, d)
        k = (y @ w[p + "self_attn.k_proj.weight"].T).reshape(n, kv, d)
        v = (y @ w[p + "self_attn.v_proj.weight"].T).reshape(n, kv, d)
        q, k = turn(norm(p + "self_attn.q_norm", q)), turn(norm(p + "self_attn.k_norm", k))
        k, v = np.repeat(k, h // kv, 1), np.repeat(v, h // kv, 1)
        s = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(c["query_pre_attn_scalar"])
        if kind == "sliding_attention":
            far = abs(place[:, None] - place[None]) >= c["sliding_window"] // 2 + 1
            s = np.where(far, -np.inf, s)
        a = np.einsum("hij,jhd->ihd", softmax(s), v).reshape(n, h * d)
        x = x + norm(p + "post_attention_layernorm", a @ w[p + "self_attn.o_proj.weight"].T)
        y = norm(p + "pre_feedforward_layernorm", x)
        g = y @ w[p + "mlp.gate_proj.weight"].T
        g = 0.5 * g * (1 + np.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3)))
        y = (g * (y @ w[p + "mlp.up_proj.weight"].T)) @ w[p + "mlp.down_proj.weight"].T
        x = x + norm(p + "post_feedforward_layernorm", y)
    return dense @ norm("norm", x).mean(0)


def f64(w):
    return {k: v.astype(np.float64) for k, v in w.items()}


def write(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        json.dump(value, f, separators=(",", ":"))


def golden(tokenizer, vector):
    out = []
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        out.append({"text": text, "ids": ids, "vector": [round(float(x), 9) for x in vector(ids)]})
    return out


def word_piece():
    letters = [chr(c) for c in range(97, 123)]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", ".", ",", ":", "the", "cat", "on", "##ing"] + letters + ["##" + l for l in letters]
    t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    # What sentence-transformers' files ask for, and we do not heed.
    t.enable_truncation(8)
    t.enable_padding(length=8)
    return t, len(words)


def main():
    r = np.random.default_rng(7)
    rand = lambda *s: (r.standard_normal(s) * 0.3).astype(np.float32)
    out = f"{HERE}/bert"
    t, vocab = word_piece()
    c = {"model_type": "bert", "hidden_act": "gelu", "hidden_size": 32, "intermediate_size": 64, "layer_norm_eps": 1e-12,
         "max_position_embeddings": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": vocab}
    write(f"{out}/config.json", c)
    w = {"embeddings.word_embeddings.weight": rand(vocab, 32), "embeddings.position_embeddings.weight": rand(128, 32),
         "embeddings.token_type_embeddings.weight": rand(2, 32), "pooler.dense.weight": rand(32, 32), "pooler.dense.bias": rand(32)}
    norms = ["embeddings.LayerNorm"]
    for i in range(2):
        p = f"encoder.layer.{i}."
        norms += [p + "attention.output.LayerNorm", p + "output.LayerNorm"]
        for name, o, n in [("attention.self.query", 32, 32), ("attention.self.key", 32, 32), ("attention.self.value", 32, 32),
                           ("attention.output.dense", 32, 32), ("intermediate.dense", 64, 32), ("output.dense", 32, 64)]:
            w[p + name + ".weight"], w[p + name + ".bias"] = rand(o, n), rand(o)
    for n in norms:
        w[n + ".weight"], w[n + ".bias"] = 1 + rand(32), rand(32)
    save_file(w, f"{out}/model.safetensors")
    t.save(f"{out}/tokenizer.json", pretty=False)
    write(f"{out}/modules.json", [{"path": "", "type": "sentence_transformers.models.Transformer"},
                                  {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                                  {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])
    write(f"{out}/1_Pooling/config.json", {"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True})
    t.no_truncation()
    t.no_padding()
    write(f"{out}/golden.json", golden(t, lambda ids: bert(f64(w), c, ids)))

    out = f"{HERE}/gemma"
    chars = ["<pad>", "<eos>", "<bos>", "<unk>", "▁"] + [f"<0x{b:02X}>" for b in range(256)] + [chr(x) for x in range(33, 127)]
    t = Tokenizer(models.BPE({x: i for i, x in enumerate(chars)}, [], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", "▁")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>"])
    t.post_processor = processors.TemplateProcessing(single="<bos> $A <eos>", special_tokens=[("<bos>", 2), ("<eos>", 1)])
    c = {"model_type": "gemma3_text", "use_bidirectional_attention": True, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 32,
         "intermediate_size": 64, "rms_norm_eps": 1e-6, "max_position_embeddings": 256, "num_attention_heads": 4, "head_dim": 16,
         "num_key_value_heads": 2, "num_hidden_layers": 6, "query_pre_attn_scalar": 24, "rope_theta": 1e6,
         "rope_local_base_freq": 1e4, "sliding_window": 16, "vocab_size": len(chars), "tie_word_embeddings": True,
         "layer_types": ["sliding_attention"] * 5 + ["full_attention"], "eos_token_id": 1, "bos_token_id": 2}
    write(f"{out}/config.json", c)
    w = {"embed_tokens.weight": rand(len(chars), 32), "norm.weight": rand(32)}
    for i in range(6):
        p = f"layers.{i}."
        for name, o, n in [("self_attn.q_proj", 64, 32), ("self_attn.k_proj", 32, 32), ("self_attn.v_proj", 32, 32),
                           ("self_attn.o_proj", 32, 64), ("mlp.gate_proj", 64, 32), ("mlp.up_proj", 64, 32), ("mlp.down_proj", 32, 64)]:
            w[p + name + ".weight"] = rand(o, n)
        for name in ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"]:
            w[p + name + ".weight"] = rand(32)
        w[p + "self_attn.q_norm.weight"], w[p + "self_attn.k_norm.weight"] = rand(16), rand(16)
    save_file(w, f"{out}/model.safetensors")
    t.save(f"{out}/tokenizer.json", pretty=False)
    write(f"{out}/modules.json", [{"path": "", "type": "sentence_transformers.models.Transformer"},
                                  {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                                  {"path": "2_Dense", "type": "sentence_transformers.models.Dense"},
                                  {"path": "3_Normalize", "type": "sentence_transformers.models.Normalize"}])
    write(f"{out}/1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
    write(f"{out}/2_Dense/config.json", {"in_features": 32, "out_features": 48, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"})
    dense = rand(48, 32)
    save_file({"linear.weight": dense}, f"{out}/2_Dense/model.safetensors")
    write(f"{out}/golden.json", golden(t, lambda ids: gemma(f64(w), dense.astype(np.float64), c, ids)))


if len(sys.argv) > 1:
    folder = sys.argv[1]
    t = Tokenizer.from_file(f"{folder}/tokenizer.json")
    t.no_truncation()
    t.no_padding()
    w, c = f64(load_file(f"{folder}/model.safetensors")), json.load(open(f"{folder}/config.json"))
    write(f"{HERE}/minilm.json", golden(t, lambda ids: bert(w, c, ids)))
else:
    main()
