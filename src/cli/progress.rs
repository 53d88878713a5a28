//! Progress lines of work whose length is known.

use indicatif::{ProgressBar, ProgressStyle};

/// A message, the bar, and what is done of what.
pub const STEPS: &str = "{msg:16} {wide_bar} {pos}/{len}";

/// A bar of `len` steps in the form of `template`.
pub fn bar(len: usize, template: &str) -> anyhow::Result<ProgressBar> {
    let progress = ProgressBar::new(len as u64);
    progress.set_style(ProgressStyle::with_template(template)?);
    Ok(progress)
}
