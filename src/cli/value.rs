//! How values on the command line are read, with messages that say what is allowed.

use hadal::Error;
use hadal::cache::{CacheType, Kind};
use hadal::engine::{Device, GpuLayers};
use hadal::quant::{FORMATS, Format};
use hadal::quantize::{Method, NamePattern, RECIPES, Recipe};
use hadal::simd::Isa;

/// A whole number of at least 1.
pub fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("must be a whole number of at least 1".into()),
        Ok(count) => Ok(count),
    }
}

/// A whole number, 0 included.
pub fn whole(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "must be a whole number, 0 or more".into())
}

/// How keys and values are stored.
pub fn cache(text: &str) -> Result<CacheType, String> {
    text.parse().map_err(reason)
}

/// How keys or values are stored.
pub fn cache_side(text: &str) -> Result<&'static Kind, String> {
    Kind::by_name(text).map_err(reason)
}

/// What is wrong, without the flag's name: that is already said.
fn reason(error: Error) -> String {
    match error {
        Error::Option { message, .. } => message,
        other => other.to_string(),
    }
}

/// A number; its range is checked by the sampler, which knows it.
pub fn number(text: &str) -> Result<f32, String> {
    text.parse().map_err(|_| "must be a number".into())
}

/// A count, or none. Named, because clap takes `Option<Option<_>>` for a flag whose value may be left out.
pub type Limit = Option<usize>;

/// A seed, or none. Named for the same reason.
pub type Seed = Option<u64>;

/// A whole number, or -1 for "no limit".
pub fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "-1" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| "must be a whole number, or -1 for no limit".into()),
    }
}

/// A window of tokens: a whole number, or -1 for the whole context.
pub fn window(text: &str) -> Result<usize, String> {
    match text {
        "-1" => Ok(usize::MAX),
        _ => text.parse().map_err(|_| "must be a whole number, or -1 for the whole context".into()),
    }
}

/// A seed, or -1 for "any".
pub fn seed(text: &str) -> Result<Seed, String> {
    match text {
        "-1" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| "must be a whole number, or -1 for any".into()),
    }
}

/// `ID+VALUE` or `ID-VALUE`, llama.cpp's spelling: `15043+1`, `15043-inf`.
pub fn logit_bias(text: &str) -> Result<(u32, f32), String> {
    let sign = text.find(['+', '-']);
    let parsed = sign.and_then(|at| Some((text[..at].parse().ok()?, text[at..].parse().ok()?)));
    parsed.ok_or_else(|| "must be a token id, a sign and a number, like 15043+1 or 15043-inf".into())
}

/// What runs a model.
pub fn device(text: &str) -> Result<Device, String> {
    match text.split_once(':') {
        None if text == "cpu" => Ok(Device::Cpu),
        None if text == "gpu" => Ok(Device::Gpu(None)),
        None if text == "auto" => Ok(Device::Auto),
        Some(("gpu", name)) if !name.trim().is_empty() => Ok(Device::Gpu(Some(name.trim().to_owned()))),
        _ => Err("must be cpu, gpu, gpu:NAME or auto".into()),
    }
}

/// Layers that a GPU runs. llama.cpp's -1 is "all".
pub fn gpu_layers(text: &str) -> Result<GpuLayers, String> {
    match text {
        "auto" => Ok(GpuLayers::Auto),
        "all" | "-1" => Ok(GpuLayers::All),
        _ => text.parse().map(GpuLayers::Last).map_err(|_| "must be a whole number, all or auto".into()),
    }
}

/// A number of bytes, with K, M, G or T for powers of 1024: `6G`, `1.5GiB`.
pub fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: &str = "kmgt";
    let lower = text.trim().to_lowercase();
    let number = lower.trim_end_matches('b').trim_end_matches('i');
    let (number, power) = match number.chars().last().and_then(|unit| UNITS.find(unit)) {
        Some(unit) => (&number[..number.len() - 1], unit as i32 + 1),
        None => (number, 0),
    };
    match number.trim().parse::<f64>() {
        // Above this a number is no longer exact, and no device has so much.
        Ok(number) if (0.0..2f64.powi(53)).contains(&(number * 1024f64.powi(power))) => {
            Ok((number * 1024f64.powi(power)) as u64)
        }
        _ => Err("must be a number of bytes, like 6G or 800M".into()),
    }
}

/// The format named `text`, if it is one of weights.
pub fn weight_format(text: &str) -> Result<&'static Format, String> {
    Format::by_name(text).filter(|format| format.dot.is_some()).ok_or_else(|| {
        let weights = FORMATS.iter().filter(|format| format.dot.is_some());
        format!("must be one of {}", weights.map(|format| format.name).collect::<Vec<_>>().join(", "))
    })
}

/// The recipe or format named `text`.
pub fn recipe(text: &str) -> Result<Recipe, String> {
    Recipe::by_name(text).ok_or_else(|| {
        let names = RECIPES.iter().map(|recipe| recipe.name);
        format!("must be one of {}, or a format of `hadal formats`", names.collect::<Vec<_>>().join(", "))
    })
}

/// A recipe of `hadal recipe`.
pub fn named_recipe(text: &str) -> Result<super::recipe::Recipe, String> {
    let recipes = super::recipe::RECIPES;
    let names = || recipes.iter().map(|recipe| recipe.name).collect::<Vec<_>>().join(", ");
    recipes
        .iter()
        .find(|recipe| recipe.name == text)
        .copied()
        .ok_or_else(|| format!("must be one of {}", names()))
}

/// How errors are made up for, if they are. Named, because clap takes `Option<Method>` for a flag that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct Feedback(pub Option<Method>);

/// rtn, or one of the methods.
pub fn method(text: &str) -> Result<Feedback, String> {
    match text {
        "rtn" => Ok(Feedback(None)),
        "ldlq" => Ok(Feedback(Some(Method::Ldlq))),
        "gptq" => Ok(Feedback(Some(Method::Gptq))),
        _ => Err("must be rtn, gptq or ldlq".into()),
    }
}

/// `REGEX=TYPE`: tensors and the format that they get.
pub fn tensor_type(text: &str) -> Result<(NamePattern, &'static Format), String> {
    let (pattern, format) = text.rsplit_once('=').ok_or("must be REGEX=TYPE, like ffn_down=q6_k")?;
    let pattern = NamePattern::new(pattern).map_err(|error| error.to_string())?;
    Ok((pattern, weight_format(format)?))
}

/// Bytes: a number of `M` or `G`, millions and thousands of millions as in llama-gguf-split.
pub fn split_size(text: &str) -> Result<u64, String> {
    let units = [("G", 1_000_000_000), ("M", 1_000_000)];
    let parsed = units.iter().find_map(|(unit, bytes)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*bytes).filter(|&bytes| bytes > 0)
    });
    parsed.ok_or_else(|| "must be a whole number of M or G, like 2G".into())
}

/// Bits per weight.
pub fn bits(text: &str) -> Result<f64, String> {
    let bits: Option<f64> = text.parse().ok();
    bits.filter(|bits| bits.is_finite() && *bits > 0.0)
        .ok_or_else(|| "must be a number above 0, like 4.5".into())
}

/// An instruction set of this CPU.
pub fn isa(text: &str) -> Result<Isa, String> {
    Isa::available().find(|isa| isa.name() == text).ok_or_else(|| {
        format!("must be one of {}", Isa::available().map(Isa::name).collect::<Vec<_>>().join(", "))
    })
}

/// What kernels are compared in: an instruction set, and whether weights are repacked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variant {
    pub isa: Isa,
    pub repack: bool,
}

/// An instruction set of this CPU, or `panel` or `none`: the fastest one with or without repacking.
pub fn variant(text: &str) -> Result<Variant, String> {
    let fastest = Isa::available().last().unwrap_or(Isa::Scalar);
    match text {
        "panel" => Ok(Variant { isa: fastest, repack: true }),
        "none" => Ok(Variant { isa: fastest, repack: false }),
        _ => isa(text)
            .map(|isa| Variant { isa, repack: true })
            .map_err(|message| format!("{message}, panel, none")),
    }
}

/// Text in which `\n`, `\t`, `\r`, `\"`, `\'` and `\\` are what they are in C; another backslash stays one.
pub fn escaped(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            result.push(character);
            continue;
        }
        match characters.next() {
            Some('n') => result.push('\n'),
            Some('t') => result.push('\t'),
            Some('r') => result.push('\r'),
            Some(quoted @ ('"' | '\'' | '\\')) => result.push(quoted),
            other => {
                result.push('\\');
                result.extend(other);
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, expected) in [
            ("8GiB", 8 << 30),
            ("1.5g", 3 << 29),
            ("500 MiB", 500 << 20),
            ("7", 7),
            ("2kb", 2048),
            ("1T", 1 << 40),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "GiB", "8 pints", "-1G", "nan", "8GG"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_are_read_or_refused() {
        let checks = [
            ("count 1", count("1") == Ok(1)),
            ("count 0", count("0").is_err()),
            ("count -1", count("-1").is_err()),
            ("count 1.5", count("1.5").is_err()),
            ("whole 0", whole("0") == Ok(0)),
            ("whole -2", whole("-2").is_err()),
            ("limit -1", limit("-1") == Ok(None)),
            ("limit 0", limit("0") == Ok(Some(0))),
            ("limit -5", limit("-5").is_err()),
            ("window -1", window("-1") == Ok(usize::MAX)),
            ("window -2", window("-2").is_err()),
            ("seed -1", seed("-1") == Ok(None)),
            ("seed max", seed("18446744073709551615") == Ok(Some(u64::MAX))),
            ("seed text", seed("x").is_err()),
            ("bias +", logit_bias("15043+1") == Ok((15043, 1.0))),
            ("bias -", logit_bias("7-1.5") == Ok((7, -1.5))),
            ("bias -inf", logit_bias("7-inf") == Ok((7, f32::NEG_INFINITY))),
            ("bias without sign", logit_bias("7").is_err()),
            ("bias without id", logit_bias("+1").is_err()),
            ("bias without number", logit_bias("7+x").is_err()),
            ("bias id too large", logit_bias("4294967296+1").is_err()),
            ("device", device("gpu:RTX 4090") == Ok(Device::Gpu(Some("RTX 4090".into())))),
            ("device auto", device("auto") == Ok(Device::Auto)),
            ("device without name", device("gpu:").is_err()),
            ("device unknown", device("npu").is_err()),
            ("layers", gpu_layers("12") == Ok(GpuLayers::Last(12))),
            ("layers -1", gpu_layers("-1") == Ok(GpuLayers::All)),
            ("layers auto", gpu_layers("auto") == Ok(GpuLayers::Auto)),
            ("layers -2", gpu_layers("-2").is_err()),
            ("bytes", bytes("6442450944") == Ok(6 << 30)),
            ("bytes G", bytes("6G") == Ok(6 << 30)),
            ("bytes GiB", bytes("1.5 GiB") == Ok(3 << 29)),
            ("bytes M", bytes("800m") == Ok(800 << 20)),
            ("bytes negative", bytes("-1G").is_err()),
            ("bytes without number", bytes("G").is_err()),
            ("bytes not a number", bytes("nanG").is_err()),
            ("recipe", recipe("q4_k").is_ok_and(|recipe| recipe.name == "Q4_K_M")),
            ("recipe of a format", recipe("q2_0").is_ok_and(|recipe| recipe.base.name == "q2_0")),
            ("recipe of nothing", recipe("q9_k").is_err_and(|message| message.contains("Q4_K_M"))),
            ("tensor type", tensor_type("a=b=q4_0").is_ok_and(|(p, f)| p.is_in("xa=by") && f.name == "q4_0")),
            ("tensor type without type", tensor_type("ffn_down").is_err()),
            ("tensor type without regex", tensor_type("(=q4_0").is_err()),
            ("split size", split_size("300M") == Ok(300_000_000)),
            ("split size without unit", split_size("300").is_err()),
            ("bits", bits("4.5") == Ok(4.5)),
            ("bits 0", bits("0").is_err()),
            ("format", weight_format("Q4_K").is_ok_and(|format| format.name == "q4_k")),
            ("format unknown", weight_format("q4").is_err()),
            ("format of activations", weight_format("q8_k").is_err()),
            ("isa", isa("scalar") == Ok(Isa::Scalar)),
            ("pack", variant("none").is_ok_and(|variant| !variant.repack)),
            ("variant unknown", variant("mmx").is_err_and(|message| message.ends_with("panel, none"))),
            ("isa unknown", isa("mmx").is_err()),
            ("escapes", escaped(r#"a\n\t\"\\n\d\"#) == "a\n\t\"\\n\\d\\"),
        ];
        let failures: Vec<_> = checks.iter().filter(|(_, passed)| !passed).map(|(name, _)| name).collect();
        assert!(failures.is_empty(), "{failures:?}");
    }
}
