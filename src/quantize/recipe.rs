//! Recipes: a base format, and the tensors that get another one. The mixtures are llama.cpp's (`llama-quant.cpp`), so
//! that a name means the same file there and here.

use crate::quant::{
    Format, bf16, f16, f32, iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, iq4_nl, iq4_xs, mxfp4,
    nvfp4, q1_0, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0, tq1_0, tq2_0,
};

/// What a name after `--type` means.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// As llama.cpp spells it, in upper case.
    pub name: &'static str,
    /// `general.file_type`, if the name has a number there.
    pub file_type: Option<u32>,
    /// The format of most tensors.
    pub base: &'static Format,
    /// The format of the output matrix, or of the embedding where that is one and the same.
    pub output: &'static Format,
    /// The first that fits a tensor counts.
    rules: &'static [Rule],
}

/// A format for some tensors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub role: Role,
    pub when: When,
    pub format: &'static Format,
}

/// What a matrix is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Embedding,
    Query,
    Key,
    Value,
    /// Query, key and value in one matrix.
    QueryKeyValue,
    AttentionOutput,
    Gate,
    Up,
    Down,
}

/// Names of a role's tensors have this part.
static NAMES: &[(&str, Role)] = &[
    ("token_embd.weight", Role::Embedding),
    ("attn_v.weight", Role::Value),
    ("attn_k.weight", Role::Key),
    ("attn_q.weight", Role::Query),
    ("ffn_down", Role::Down),
    ("attn_output.weight", Role::AttentionOutput),
    ("attn_qkv.weight", Role::QueryKeyValue),
    ("ffn_gate", Role::Gate),
    ("ffn_up", Role::Up),
];

impl Role {
    /// The role of the tensor `name`.
    pub fn of(name: &str) -> Option<Role> {
        NAMES.iter().find(|(part, _)| name.contains(part)).map(|(_, role)| *role)
    }
}

/// Where a rule holds. A tensor is the `index`th of `count` of its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// index < n.
    First(usize),
    /// index < count / n.
    FirstPart(usize),
    /// In the first and last eighth, and each third between.
    MoreBits,
    /// Between the first and last eighth.
    Middle,
    /// Four query heads or more share a key head.
    Shared,
    /// So, or there are four experts or more.
    SharedOrExperts,
    /// There are eight experts.
    EightExperts,
    /// Without importance.
    Unweighted,
    /// Without importance, index < count / 8.
    UnweightedFirstEighth,
    /// With importance, index < count / 8.
    WeightedFirstEighth,
}

/// What a rule's condition asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub index: usize,
    pub count: usize,
    /// Query heads a key head.
    pub sharing: usize,
    pub experts: usize,
    pub weighted: bool,
}

impl When {
    /// Whether it holds.
    pub fn holds(self, case: Case) -> bool {
        let Case { index, count, sharing, experts, weighted } = case;
        let eighth = count / 8;
        let last = index >= 7 * count / 8;
        match self {
            When::Always => true,
            When::First(n) => index < n,
            When::FirstPart(n) => index < count / n,
            When::MoreBits => index < eighth || last || (index - eighth) % 3 == 2,
            When::Middle => index >= eighth && !last,
            When::Shared => sharing >= 4,
            When::SharedOrExperts => sharing >= 4 || experts >= 4,
            When::EightExperts => experts == 8,
            When::Unweighted => !weighted,
            When::UnweightedFirstEighth => !weighted && index < eighth,
            When::WeightedFirstEighth => weighted && index < eighth,
        }
    }
}

impl Recipe {
    /// The recipe or format called `name`, in any case. `Q4_K` is `Q4_K_M`, as in llama.cpp.
    pub fn by_name(name: &str) -> Option<Recipe> {
        let name = name.to_ascii_uppercase();
        let known = match name.as_str() {
            "Q3_K" => "Q3_K_M",
            "Q4_K" => "Q4_K_M",
            "Q5_K" => "Q5_K_M",
            "MXFP4_MOE" => "MXFP4",
            other => other,
        };
        RECIPES.iter().find(|recipe| recipe.name == known).copied().or_else(|| {
            let base = Format::by_name(&name).filter(|format| format.dot.is_some())?;
            Some(Recipe { name: base.name, file_type: None, base, output: &q6_k::FORMAT, rules: &[] })
        })
    }

    /// The format of a tensor with this role.
    pub(super) fn format(&self, role: Role, case: Case) -> &'static Format {
        let fits = |rule: &&Rule| rule.role == role && rule.when.holds(case);
        self.rules.iter().find(fits).map_or(self.base, |rule| rule.format)
    }
}

/// A format for rows that are no whole number of blocks of `format`; `None` if any row is.
pub(super) fn substitute(format: &Format) -> Option<&'static Format> {
    Some(match format.name {
        "q4_k" => &q5_0::FORMAT,
        "q5_k" => &q5_1::FORMAT,
        "q6_k" => &q8_0::FORMAT,
        "tq1_0" | "tq2_0" => &q4_0::FORMAT,
        _ if format.block_len > 32 => &iq4_nl::FORMAT,
        _ if format.block_len > 1 => &f16::FORMAT,
        _ => return None,
    })
}

const fn plain(name: &'static str, file_type: u32, base: &'static Format) -> Recipe {
    Recipe { name, file_type: Some(file_type), base, output: base, rules: &[] }
}

const fn mixed(name: &'static str, file_type: u32, base: &'static Format, rules: &'static [Rule]) -> Recipe {
    Recipe { name, file_type: Some(file_type), base, output: &q6_k::FORMAT, rules }
}

/// Below three bits the output matrix is Q5_K.
const fn tiny(name: &'static str, file_type: u32, base: &'static Format, rules: &'static [Rule]) -> Recipe {
    Recipe { name, file_type: Some(file_type), base, output: &q5_k::FORMAT, rules }
}

/// Rules of a recipe: `role when: format, ...`, behind `experts;` those that all mixtures have for eight experts.
macro_rules! rules {
    (experts; $($rules:tt)*) => {
        rules![Value EightExperts: q8_0, Key EightExperts: q8_0, $($rules)*]
    };
    ($($role:ident $when:ident $(($n:expr))?: $format:ident),* $(,)?) => {
        &[$(Rule { role: Role::$role, when: When::$when $(($n))?, format: &$format::FORMAT }),*]
    };
}

/// IQ4_NL and IQ4_XS.
const IQ4: &[Rule] = rules![
    experts; Value Shared: q5_k,
    Down UnweightedFirstEighth: q5_k, AttentionOutput EightExperts: q5_k,
];

/// IQ2_XXS and its neighbours; `output` is what attention's output gets.
macro_rules! two_bits {
    ($more:ident, $embedding:ident, $output:ident) => {
        rules![
            Embedding Always: $embedding,
            Value SharedOrExperts: q4_k,
            Value Always: $more,
            Key EightExperts: q4_k,
            Down FirstPart(8): $more,
            AttentionOutput EightExperts: q5_k,
            AttentionOutput Always: $output,
        ]
    };
}

/// Every mixture with a name, from large to small.
pub static RECIPES: &[Recipe] = &[
    plain("F32", 0, &f32::FORMAT),
    plain("F16", 1, &f16::FORMAT),
    plain("BF16", 32, &bf16::FORMAT),
    plain("Q8_0", 7, &q8_0::FORMAT),
    mixed("Q6_K", 18, &q6_k::FORMAT, rules![experts;]),
    mixed(
        "Q5_K_M",
        17,
        &q5_k::FORMAT,
        rules![
            experts; Value MoreBits: q6_k, Down MoreBits: q6_k,
            QueryKeyValue Always: q6_k,
        ],
    ),
    mixed("Q5_K_S", 16, &q5_k::FORMAT, rules![experts;]),
    mixed("Q5_1", 9, &q5_1::FORMAT, rules![experts;]),
    mixed("Q5_0", 8, &q5_0::FORMAT, rules![experts; Down WeightedFirstEighth: q5_1]),
    mixed(
        "Q4_K_M",
        15,
        &q4_k::FORMAT,
        rules![
            experts; Value MoreBits: q6_k, Down MoreBits: q6_k,
            AttentionOutput EightExperts: q5_k, QueryKeyValue Always: q5_k,
        ],
    ),
    mixed(
        "Q4_K_S",
        14,
        &q4_k::FORMAT,
        rules![
            experts; Value First(4): q5_k, Down FirstPart(8): q5_k,
            AttentionOutput EightExperts: q5_k,
        ],
    ),
    mixed("Q4_1", 3, &q4_1::FORMAT, rules![experts;]),
    mixed("Q4_0", 2, &q4_0::FORMAT, rules![experts; Down WeightedFirstEighth: q4_1]),
    mixed("IQ4_NL", 25, &iq4_nl::FORMAT, IQ4),
    mixed("IQ4_XS", 30, &iq4_xs::FORMAT, IQ4),
    Recipe { output: &q8_0::FORMAT, ..plain("MXFP4", 38, &mxfp4::FORMAT) },
    Recipe { output: &q8_0::FORMAT, ..plain("NVFP4", 39, &nvfp4::FORMAT) },
    mixed(
        "Q3_K_L",
        13,
        &q3_k::FORMAT,
        rules![
            experts; Value Always: q5_k, Down Always: q5_k,
            AttentionOutput Always: q5_k, QueryKeyValue Always: q4_k,
        ],
    ),
    mixed(
        "Q3_K_M",
        12,
        &q3_k::FORMAT,
        rules![
            experts; Value First(2): q5_k, Value Always: q4_k,
            Down FirstPart(16): q5_k, Down Always: q4_k, AttentionOutput EightExperts: q5_k,
            AttentionOutput Always: q4_k, QueryKeyValue Always: q4_k,
        ],
    ),
    mixed(
        "Q3_K_S",
        11,
        &q3_k::FORMAT,
        rules![
            experts; AttentionOutput EightExperts: q5_k,
        ],
    ),
    mixed(
        "IQ3_M",
        27,
        &iq3_s::FORMAT,
        rules![
            experts; Value Always: q4_k, Down FirstPart(8): q4_k,
            AttentionOutput EightExperts: q5_k, AttentionOutput Always: q4_k, QueryKeyValue Always: q4_k,
        ],
    ),
    mixed(
        "IQ3_S",
        26,
        &iq3_s::FORMAT,
        rules![
            experts; Value Shared: q4_k,
            AttentionOutput EightExperts: q5_k,
        ],
    ),
    mixed(
        "IQ3_XS",
        22,
        &iq3_s::FORMAT,
        rules![
            experts; Value Shared: q4_k, Key Always: iq3_xxs,
            Query Always: iq3_xxs, AttentionOutput EightExperts: q5_k, Gate Middle: iq3_xxs, Up Middle: iq3_xxs,
        ],
    ),
    tiny(
        "IQ3_XXS",
        23,
        &iq3_xxs::FORMAT,
        rules![
            experts; Embedding Always: iq3_s, Value Shared: q4_k,
            Value Unweighted: iq3_s, Key Always: iq2_s, Query Always: iq2_s, Down UnweightedFirstEighth: q4_k,
            Down Unweighted: q3_k, AttentionOutput EightExperts: q5_k, AttentionOutput Always: iq3_s,
        ],
    ),
    mixed(
        "Q2_K",
        10,
        &q2_k::FORMAT,
        rules![
            experts; Value Shared: q4_k, Value Always: q3_k,
            Down Always: q3_k, AttentionOutput EightExperts: q5_k, AttentionOutput Always: q3_k,
        ],
    ),
    mixed(
        "Q2_K_S",
        21,
        &q2_k::FORMAT,
        rules![
            experts; Value Shared: q4_k, Down FirstPart(8): q4_k,
        ],
    ),
    tiny("IQ2_M", 29, &iq2_s::FORMAT, two_bits!(iq3_s, iq3_s, iq3_s)),
    tiny("IQ2_S", 28, &iq2_xs::FORMAT, two_bits!(iq3_s, iq3_s, iq3_s)),
    tiny("IQ2_XS", 20, &iq2_xs::FORMAT, two_bits!(q2_k, q2_k, iq2_xs)),
    tiny("IQ2_XXS", 19, &iq2_xxs::FORMAT, two_bits!(q2_k, q2_k, iq2_xxs)),
    tiny("IQ1_M", 31, &iq1_m::FORMAT, two_bits!(q2_k, q2_k, iq2_xxs)),
    tiny("IQ1_S", 24, &iq1_s::FORMAT, two_bits!(q2_k, q2_k, iq2_xxs)),
    mixed("TQ2_0", 37, &tq2_0::FORMAT, rules![Embedding Always: q4_k]),
    mixed("TQ1_0", 36, &tq1_0::FORMAT, rules![Embedding Always: q4_k]),
    mixed("Q1_0", 40, &q1_0::FORMAT, &[]),
];
