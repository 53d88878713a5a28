//! Prints generated text as it comes, and what it took.

use std::io::{Write, stderr, stdout};
use std::time::Duration;

use hadal::engine::{Info, Stats};

/// Standard output, piece by piece.
#[derive(Debug, Default)]
pub struct Printer {
    /// Whether the last line is unfinished.
    open_line: bool,
}

impl Printer {
    /// Prints `text` and flushes, so that it is seen at once.
    pub fn print(&mut self, text: &str) -> std::io::Result<()> {
        let mut out = stdout().lock();
        out.write_all(text.as_bytes())?;
        if !text.is_empty() {
            self.open_line = !text.ends_with('\n');
        }
        out.flush()
    }

    /// Prints all pieces. However they end, the last line is finished.
    pub fn stream(&mut self, pieces: impl Iterator<Item = hadal::Result<String>>) -> anyhow::Result<()> {
        let mut result = Ok(());
        for piece in pieces {
            match piece {
                Ok(piece) => self.print(&piece)?,
                Err(error) => result = Err(error.into()),
            }
        }
        if self.open_line {
            self.print("\n")?;
        }
        result
    }
}

/// Prints what an answer took on standard error.
pub fn print_stats(stats: &Stats) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(stderr(), "{}", describe(stats));
}

/// One line: tokens and speed of prompt and answer, and the time of both.
pub fn describe(stats: &Stats) -> String {
    let computed = stats.prompt_tokens - stats.cached_tokens;
    let cached = match stats.cached_tokens {
        0 => String::new(),
        cached => format!(" + {cached} cached"),
    };
    format!(
        "prompt {computed} tokens{cached}, {} · answer {} tokens, {} · total {:.2} s",
        speed(computed, stats.prompt_time),
        stats.generated_tokens,
        speed(stats.generated_tokens, stats.generate_time),
        (stats.prompt_time + stats.generate_time).as_secs_f64(),
    )
}

fn speed(tokens: usize, time: Duration) -> String {
    if time.is_zero() {
        return "- tokens/s".into();
    }
    format!("{:.1} tokens/s", tokens as f64 / time.as_secs_f64())
}

/// What to say when an answer ended because the context is full.
pub(super) fn full_context(info: &Info) -> String {
    let Info { context, trained_context, .. } = info;
    if context < trained_context {
        format!(
            "the context of {context} tokens is full; --ctx-size makes it larger, up to {trained_context}"
        )
    } else {
        format!("the context of {context} tokens is full; the model was trained for no more")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_fit_one_line() {
        let stats = Stats {
            prompt_tokens: 12,
            cached_tokens: 4,
            prompt_time: Duration::from_millis(500),
            generated_tokens: 30,
            generate_time: Duration::from_millis(1500),
            ..Stats::default()
        };
        let line =
            "prompt 8 tokens + 4 cached, 16.0 tokens/s · answer 30 tokens, 20.0 tokens/s · total 2.00 s";
        assert_eq!(describe(&stats), line);
        let line = "prompt 0 tokens, - tokens/s · answer 0 tokens, - tokens/s · total 0.00 s";
        assert_eq!(describe(&Stats::default()), line);
    }
}
