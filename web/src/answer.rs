//! Speaking: step by step, and listening to the page in between.

use hadal::engine::{Finish, Interrupt, Stats};
use serde::Serialize;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use crate::error::failed;

/// Whom an answer is given to.
pub struct Answer {
    pub interrupt: Interrupt,
    /// Text in; a promise out, of `true` to stop.
    pub hear: js_sys::Function,
}

impl Answer {
    /// Takes `step` after `step` until there are no more.
    pub async fn speak(
        &self,
        mut step: impl AsyncFnMut() -> Option<hadal::Result<String>>,
    ) -> Result<(), JsValue> {
        while let Some(text) = step().await {
            let text = text.map_err(failed)?;
            let heard = self.hear.call1(&JsValue::NULL, &text.into())?;
            let heard: js_sys::Promise = heard.unchecked_into();
            if JsFuture::from(heard).await?.is_truthy() {
                self.interrupt.stop();
            }
        }
        Ok(())
    }
}

/// What an answer was.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// `stop`, `length`, `context` or `aborted`.
    pub finish: &'static str,
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub generated_tokens: usize,
    pub prompt_seconds: f64,
    pub generate_seconds: f64,
    pub first_token_seconds: f64,
    /// In decimal digits: it may be above 2⁵³.
    pub seed: String,
}

/// JSON.
pub fn done(finish: Option<Finish>, stats: &Stats, seed: u64) -> String {
    let done = Done {
        finish: match finish {
            Some(Finish::Stop) => "stop",
            Some(Finish::Length) => "length",
            Some(Finish::Context) => "context",
            Some(Finish::Interrupted) | None => "aborted",
        },
        prompt_tokens: stats.prompt_tokens,
        cached_tokens: stats.cached_tokens,
        generated_tokens: stats.generated_tokens,
        prompt_seconds: stats.prompt_time.as_secs_f64(),
        generate_seconds: stats.generate_time.as_secs_f64(),
        first_token_seconds: stats.first_token_time.as_secs_f64(),
        seed: seed.to_string(),
    };
    serde_json::to_string(&done).unwrap_or_default()
}
