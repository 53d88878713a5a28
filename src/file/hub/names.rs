//! What Hugging Face calls architectures and tensors, and what GGUF calls them. Sources: the `model_type`s and
//! modules of transformers' `modeling_*.py`, GGUF's names as in gguf-py's `tensor_mapping.py`.

/// An architecture whose folders we translate.
pub(super) struct Architecture {
    /// As in config.json.
    pub model_type: &'static str,
    /// GGUF's name for it.
    pub name: &'static str,
    /// Where its layers and modules are.
    layout: &'static Layout,
    /// Modules of a layer that are named differently from architecture to architecture.
    pub norms: &'static [Rename],
    /// Whether norm weights are stored less one, to be read as 1 + weight.
    pub norms_less_one: bool,
    /// Values that transformers assumes where config.json is silent.
    pub defaults: &'static [(&'static str, Assumed)],
}

/// A value of config.json.
#[derive(Clone, Copy)]
pub(super) enum Assumed {
    Bool(bool),
    Integer(u64),
    Float(f64),
    Text(&'static str),
}

/// Modules that many architectures share.
struct Layout {
    /// What stands before the number of a layer.
    layers: &'static str,
    /// Of a layer.
    inside: &'static [Rename],
    /// Outside the layers.
    outside: &'static [Rename],
}

/// A module's name there and here.
type Rename = (&'static str, &'static str);

pub(super) static ARCHITECTURES: &[Architecture] = &[
    Architecture {
        model_type: "llama",
        name: "llama",
        layout: &DECODER,
        norms: PRE_NORMS,
        norms_less_one: false,
        defaults: &[
            ("hidden_act", Assumed::Text("silu")),
            ("rms_norm_eps", Assumed::Float(1e-6)),
            ("rope_theta", Assumed::Float(10000.0)),
            ("tie_word_embeddings", Assumed::Bool(false)),
        ],
    },
    Architecture {
        model_type: "qwen2",
        name: "qwen2",
        layout: &DECODER,
        norms: PRE_NORMS,
        norms_less_one: false,
        defaults: &[
            ("hidden_act", Assumed::Text("silu")),
            ("rms_norm_eps", Assumed::Float(1e-6)),
            ("rope_theta", Assumed::Float(10000.0)),
            ("tie_word_embeddings", Assumed::Bool(false)),
            ("use_sliding_window", Assumed::Bool(false)),
        ],
    },
    Architecture {
        model_type: "qwen3",
        name: "qwen3",
        layout: &DECODER,
        norms: PRE_NORMS,
        norms_less_one: false,
        defaults: &[
            ("head_dim", Assumed::Integer(128)),
            ("hidden_act", Assumed::Text("silu")),
            ("rms_norm_eps", Assumed::Float(1e-6)),
            ("rope_theta", Assumed::Float(10000.0)),
            ("tie_word_embeddings", Assumed::Bool(false)),
            ("use_sliding_window", Assumed::Bool(false)),
        ],
    },
    GEMMA3,
    // config.json has one name for both, and says that tokens see each other in both directions.
    Architecture { model_type: EMBEDDING_GEMMA, name: EMBEDDING_GEMMA, ..GEMMA3 },
    Architecture {
        model_type: "bert",
        name: "bert",
        layout: &BERT,
        norms: &[
            ("attention.output.LayerNorm", "attn_output_norm"),
            ("output.LayerNorm", "layer_output_norm"),
        ],
        norms_less_one: false,
        defaults: &[("hidden_act", Assumed::Text("gelu")), ("layer_norm_eps", Assumed::Float(1e-12))],
    },
];

/// GGUF's name of Gemma 3 whose attention is not causal.
pub(super) const EMBEDDING_GEMMA: &str = "gemma-embedding";

const GEMMA3: Architecture = Architecture {
    model_type: "gemma3_text",
    name: "gemma3",
    layout: &DECODER,
    norms: &[
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "post_attention_norm"),
        ("pre_feedforward_layernorm", "ffn_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"),
    ],
    norms_less_one: true,
    defaults: &[
        ("head_dim", Assumed::Integer(256)),
        ("hidden_activation", Assumed::Text("gelu_pytorch_tanh")),
        ("max_position_embeddings", Assumed::Integer(131072)),
        ("num_attention_heads", Assumed::Integer(8)),
        ("num_key_value_heads", Assumed::Integer(4)),
        ("query_pre_attn_scalar", Assumed::Float(256.0)),
        ("rms_norm_eps", Assumed::Float(1e-6)),
        ("rope_local_base_freq", Assumed::Float(10000.0)),
        ("rope_theta", Assumed::Float(1_000_000.0)),
        ("sliding_window", Assumed::Integer(4096)),
        ("sliding_window_pattern", Assumed::Integer(6)),
        ("tie_word_embeddings", Assumed::Bool(true)),
        ("vocab_size", Assumed::Integer(262208)),
    ],
};

static PRE_NORMS: &[Rename] = &[("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm")];

/// Modules of a layer that all of them share.
static LAYER: &[Rename] = &[
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// Modules outside the layers.
static OUTSIDE: &[Rename] = &[("embed_tokens", "token_embd"), ("norm", "output_norm"), ("lm_head", "output")];

static DECODER: Layout = Layout { layers: "layers.", inside: LAYER, outside: OUTSIDE };

static BERT: Layout = Layout {
    layers: "encoder.layer.",
    inside: &[
        ("attention.self.query", "attn_q"),
        ("attention.self.key", "attn_k"),
        ("attention.self.value", "attn_v"),
        ("attention.output.dense", "attn_output"),
        ("intermediate.dense", "ffn_up"),
        ("output.dense", "ffn_down"),
    ],
    outside: &[
        ("embeddings.word_embeddings", "token_embd"),
        ("embeddings.position_embeddings", "position_embd"),
        ("embeddings.token_type_embeddings", "token_types"),
        ("embeddings.LayerNorm", "token_embd_norm"),
    ],
};

/// What may stand before the names above: the text part of a model with images is one module deeper, in one order
/// or the other, and a bare model has nothing. Longer prefixes first.
static PREFIXES: &[&str] =
    &["language_model.model.", "model.language_model.", "language_model.", "model.", "bert."];

impl Architecture {
    pub fn of(model_type: &str) -> Option<&'static Architecture> {
        ARCHITECTURES.iter().find(|architecture| architecture.model_type == model_type)
    }

    /// GGUF's name for a tensor, or `None` if it is not a part of the language model that we know.
    pub fn gguf_name(&self, name: &str) -> Option<String> {
        let (module, suffix) = bare(name).rsplit_once('.')?;
        let Some(rest) = module.strip_prefix(self.layout.layers) else {
            return Some(format!("{}.{suffix}", find(self.layout.outside, module)?));
        };
        let (layer, module) = rest.split_once('.')?;
        let layer: u32 = layer.parse().ok()?;
        let module = find(self.norms, module).or_else(|| find(self.layout.inside, module))?;
        Some(format!("blk.{layer}.{module}.{suffix}"))
    }
}

/// What the folder of architecture `architecture` (GGUF's name) calls the tensor `name`, and whether its values are stored
/// less one there.
pub(crate) fn folder_name(architecture: &str, name: &str) -> Option<(String, bool)> {
    let architecture = ARCHITECTURES.iter().find(|row| row.name == architecture)?;
    let less_one = architecture.norms_less_one && name.ends_with("_norm.weight");
    let (module, suffix) = name.rsplit_once('.')?;
    let back = |renames: &[Rename], module: &str| {
        renames.iter().find(|(_, here)| *here == module).map(|(there, _)| *there)
    };
    let Some(rest) = module.strip_prefix("blk.") else {
        let module = back(OUTSIDE, module)?;
        let prefix = if module == "lm_head" { "" } else { "model." };
        return Some((format!("{prefix}{module}.{suffix}"), less_one));
    };
    let (layer, module) = rest.split_once('.')?;
    let module = back(architecture.norms, module).or_else(|| back(LAYER, module))?;
    Some((format!("model.layers.{layer}.{module}.{suffix}"), less_one))
}

/// `name` less what may stand before it.
pub(super) fn bare(name: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}

fn find(renames: &[Rename], module: &str) -> Option<&'static str> {
    renames.iter().find(|(there, _)| *there == module).map(|(_, here)| *here)
}
