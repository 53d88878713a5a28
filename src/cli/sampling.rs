//! The sampling flags, named as in llama.cpp. Each is optional, so that the chat's `/set` can change one.

use clap::Args;
use hadal::Sampling;

use super::value;

/// Flags that choose how the next token is picked.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Most tokens to generate; -1: until the end [default: -1]
    #[arg(short = 'n', long, visible_aliases = ["n-predict", "max-tokens"], value_name = "N",
        allow_negative_numbers = true, value_parser = value::limit)]
    predict: Option<value::Limit>,

    /// Flattens (above 1) or sharpens the odds; 0: always the most likely token [default: 0.8]
    #[arg(long, visible_alias = "temperature", value_name = "T", allow_negative_numbers = true,
        value_parser = value::number)]
    temp: Option<f32>,

    /// Keep the K most likely tokens; 0: off [default: 40]
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = value::whole)]
    top_k: Option<usize>,

    /// Keep the most likely tokens up to a share P of the probability; 1: off [default: 0.95]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = value::number)]
    top_p: Option<f32>,

    /// Keep tokens at least P times as likely as the best; 0: off [default: 0.05]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = value::number)]
    min_p: Option<f32>,

    /// Keep the most typical tokens up to a share P of the probability; 1: off [default: 1]
    #[arg(long, visible_alias = "typical-p", value_name = "P", allow_negative_numbers = true,
        value_parser = value::number)]
    typical: Option<f32>,

    /// Fewest tokens that a filter leaves [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = value::count)]
    min_keep: Option<usize>,

    /// Makes recent tokens less likely; 1: off [default: 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = value::number)]
    repeat_penalty: Option<f32>,

    /// Tokens that the penalties look back; 0: off, -1: whole context [default: 64]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = value::window)]
    repeat_last_n: Option<usize>,

    /// Taken once from a recent token's logit; 0: off [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = value::number)]
    presence_penalty: Option<f32>,

    /// Taken from a recent token's logit as often as it occurs; 0: off [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = value::number)]
    frequency_penalty: Option<f32>,

    /// Strength of the penalty on repeated passages (DRY); 0: off [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = value::number)]
    dry_multiplier: Option<f32>,

    /// Growth of the DRY penalty with each repeated token [default: 1.75]
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = value::number)]
    dry_base: Option<f32>,

    /// Repeated tokens from which DRY penalizes [default: 2]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = value::count)]
    dry_allowed_length: Option<usize>,

    /// Tokens that DRY looks back; 0: off, -1: whole context [default: -1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = value::window)]
    dry_penalty_last_n: Option<usize>,

    /// A token with TEXT ends a repetition; may be given again; none: no breakers [default: \n : " *]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = escaped)]
    dry_sequence_breaker: Vec<String>,

    /// How often XTC removes the top choices, 0 to 1; 0: off [default: 0]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = value::number)]
    xtc_probability: Option<f32>,

    /// How likely a token must be to be a top choice; above 0.5: off [default: 0.1]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = value::number)]
    xtc_threshold: Option<f32>,

    /// Makes token ID more or less likely, like 15043+1 or 15043-inf; may be given again
    #[arg(long, value_name = "ID(+|-)VALUE", value_parser = value::logit_bias)]
    logit_bias: Vec<(u32, f32)>,

    /// Start of the random numbers; -1: any [default: -1]
    #[arg(short, long, value_name = "SEED", allow_negative_numbers = true, value_parser = value::seed)]
    seed: Option<value::Seed>,

    /// End where TEXT would come; may be given again; \n and \t are understood
    #[arg(short = 'r', long, visible_alias = "reverse-prompt", value_name = "TEXT",
        allow_hyphen_values = true, value_parser = escaped)]
    stop: Vec<String>,
}

/// clap wants a `Result`, also from what cannot fail.
fn escaped(text: &str) -> Result<String, std::convert::Infallible> {
    Ok(value::escaped(text))
}

/// Overwrites a setting if a flag was given.
fn set<T>(setting: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *setting = value;
    }
}

impl SamplingArgs {
    /// The defaults with every flag that was given.
    ///
    /// # Errors
    /// [`hadal::Error::Option`] for a value outside its range.
    pub fn sampling(&self) -> hadal::Result<Sampling> {
        let mut sampling = Sampling::default();
        self.apply(&mut sampling);
        sampling.validate()?;
        Ok(sampling)
    }

    /// Overwrites the settings for which a flag was given. Lists are replaced, not extended.
    pub fn apply(&self, sampling: &mut Sampling) {
        set(&mut sampling.max_tokens, self.predict);
        set(&mut sampling.temperature, self.temp);
        set(&mut sampling.top_k, self.top_k);
        set(&mut sampling.top_p, self.top_p);
        set(&mut sampling.min_p, self.min_p);
        set(&mut sampling.typical_p, self.typical);
        set(&mut sampling.min_keep, self.min_keep);
        set(&mut sampling.repeat_penalty, self.repeat_penalty);
        set(&mut sampling.repeat_last_n, self.repeat_last_n);
        set(&mut sampling.presence_penalty, self.presence_penalty);
        set(&mut sampling.frequency_penalty, self.frequency_penalty);
        set(&mut sampling.dry_multiplier, self.dry_multiplier);
        set(&mut sampling.dry_base, self.dry_base);
        set(&mut sampling.dry_allowed_length, self.dry_allowed_length);
        set(&mut sampling.dry_last_n, self.dry_penalty_last_n);
        set(&mut sampling.xtc_probability, self.xtc_probability);
        set(&mut sampling.xtc_threshold, self.xtc_threshold);
        set(&mut sampling.seed, self.seed);
        set(&mut sampling.logit_bias, given(&self.logit_bias));
        set(&mut sampling.stop, given(&self.stop));
        let breakers = given(&self.dry_sequence_breaker);
        set(
            &mut sampling.dry_breakers,
            breakers.map(|texts| if texts == ["none"] { Vec::new() } else { texts }),
        );
    }
}

/// The values of a flag that may be given several times, if it was given.
fn given<T: Clone>(values: &[T]) -> Option<Vec<T>> {
    (!values.is_empty()).then(|| values.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Flags {
        #[command(flatten)]
        sampling: SamplingArgs,
    }

    fn parse(arguments: &[String]) -> Sampling {
        let mut sampling = Sampling::default();
        Flags::try_parse_from(arguments).unwrap().sampling.apply(&mut sampling);
        sampling
    }

    /// The help states defaults in words; they must be those of [`Sampling`].
    #[test]
    fn the_help_tells_the_defaults() {
        let mut checked = 0;
        for flag in Flags::command().get_arguments() {
            let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
            let (Some((_, default)), Some(name)) = (help.split_once("[default: "), flag.get_long()) else {
                continue;
            };
            let values = default.trim_end_matches(']').split(' ');
            let arguments: Vec<String> = values.map(|value| format!("--{name}={value}")).collect();
            assert_eq!(parse(&arguments), Sampling::default(), "{arguments:?}");
            checked += 1;
        }
        assert!(checked > 15, "{checked} flags with a default");
    }

    #[test]
    fn flags_reach_their_setting() {
        let given = |text: &str| parse(&text.split(' ').map(String::from).collect::<Vec<_>>());
        let default = Sampling::default;
        let cases = [
            ("-n 5", Sampling { max_tokens: Some(5), ..default() }),
            ("--n-predict -1", default()),
            ("--max-tokens 0", Sampling { max_tokens: Some(0), ..default() }),
            ("--temp 0", Sampling::greedy()),
            ("--temperature 1.5", Sampling { temperature: 1.5, ..default() }),
            ("--top-k 3", Sampling { top_k: 3, ..default() }),
            ("--top-p 0.5", Sampling { top_p: 0.5, ..default() }),
            ("--min-p 0", Sampling { min_p: 0.0, ..default() }),
            ("--typical 0.5", Sampling { typical_p: 0.5, ..default() }),
            ("--min-keep 2", Sampling { min_keep: 2, ..default() }),
            ("--repeat-penalty 1.5", Sampling { repeat_penalty: 1.5, ..default() }),
            ("--repeat-last-n -1", Sampling { repeat_last_n: usize::MAX, ..default() }),
            ("--presence-penalty -2", Sampling { presence_penalty: -2.0, ..default() }),
            ("--frequency-penalty 0.5", Sampling { frequency_penalty: 0.5, ..default() }),
            ("--dry-multiplier 0.5", Sampling { dry_multiplier: 0.5, ..default() }),
            ("--dry-base 2", Sampling { dry_base: 2.0, ..default() }),
            ("--dry-allowed-length 4", Sampling { dry_allowed_length: 4, ..default() }),
            ("--dry-penalty-last-n 9", Sampling { dry_last_n: 9, ..default() }),
            ("--dry-sequence-breaker none", Sampling { dry_breakers: Vec::new(), ..default() }),
            (
                "--dry-sequence-breaker . --dry-sequence-breaker \\n",
                Sampling { dry_breakers: vec![".".into(), "\n".into()], ..default() },
            ),
            ("--xtc-probability 0.5", Sampling { xtc_probability: 0.5, ..default() }),
            ("--xtc-threshold 0.2", Sampling { xtc_threshold: 0.2, ..default() }),
            (
                "--logit-bias 7-inf --logit-bias 8+1",
                Sampling { logit_bias: vec![(7, f32::NEG_INFINITY), (8, 1.0)], ..default() },
            ),
            ("-s 9", Sampling { seed: Some(9), ..default() }),
            ("--seed -1", default()),
            ("-r User: --stop \\n\\n", Sampling { stop: vec!["User:".into(), "\n\n".into()], ..default() }),
            ("--reverse-prompt -", Sampling { stop: vec!["-".into()], ..default() }),
        ];
        let failures: Vec<_> = cases
            .iter()
            .filter(|(text, expected)| given(text) != *expected)
            .map(|(text, expected)| format!("{text}: {:?}, not {expected:?}", given(text)))
            .collect();
        assert!(failures.is_empty(), "{failures:#?}");
    }
}
