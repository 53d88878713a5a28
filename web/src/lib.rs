//! The engine as JavaScript sees it: numbers, texts and JSON go in and out, everything else is `hadal`'s. It lives in a
//! worker, where the TypeScript package beside it (`../ts`) calls it; pages never do.

use hadal::file::Weights;
use hadal::tokenizer::Special;
use wasm_bindgen::prelude::*;

mod answer;
mod console;
mod error;
mod files;
mod hash;
mod info;
mod options;
#[cfg(target_feature = "atomics")]
mod threads;

use answer::Answer;
use error::failed;

/// A model that is ready to answer.
#[wasm_bindgen]
pub struct Model {
    engine: hadal::Engine,
    parts: usize,
}

#[wasm_bindgen]
impl Model {
    /// Opens a GGUF file, or all parts of a split one in order. `names` are their names and the first's number is 0: the
    /// worker reads them (`files.rs`). `options`: JSON, see [`options::Open`].
    ///
    /// # Errors
    /// See `error.rs`.
    pub async fn open(names: Vec<String>, sizes: Vec<f64>, options: &str) -> Result<Model, JsValue> {
        let options = options::open(options).map_err(failed)?;
        let weights = Weights::from_files(files::all(&names, &sizes)).map_err(failed)?;
        files::hold_vectors(&weights).map_err(failed)?;
        let engine = hadal::Engine::load(&weights, &options).await.map_err(failed)?;
        if options.device == hadal::engine::Device::Cpu {
            files::hold_taken(&weights).map_err(failed)?;
        }
        Ok(Model { engine, parts: names.len() })
    }

    /// JSON: see [`info::Info`].
    pub fn info(&self) -> String {
        info::info(&self.engine, self.parts)
    }

    /// The ids of `text`; control tokens that it spells are such if `special`.
    ///
    /// # Errors
    /// See `error.rs`.
    pub fn tokenize(&self, text: &str, special: bool) -> Result<Vec<u32>, JsValue> {
        let special = if special { Special::Parse } else { Special::Text };
        self.engine.tokenizer().encode_prompt(text, special).map_err(failed)
    }

    /// The text of `ids`, without control tokens.
    pub fn detokenize(&self, ids: &[u32]) -> String {
        self.engine.tokenizer().decode(ids)
    }

    /// The logits behind `ids`, one a vocabulary entry, as from an empty context.
    ///
    /// # Errors
    /// See `error.rs`.
    pub async fn logits(&mut self, ids: &[u32]) -> Result<Vec<f32>, JsValue> {
        self.engine.reset();
        Ok(self.engine.read(ids).await.map_err(failed)?.to_vec())
    }

    /// Continues `prompt` with `sampling` (JSON, see [`options::Sampling`]). `hear` is called with each piece of text,
    /// which may be empty, and gives a promise: of `true` to stop. Returns JSON: see [`answer::Done`].
    ///
    /// # Errors
    /// See `error.rs`.
    pub async fn generate(
        &mut self,
        prompt: &str,
        sampling: &str,
        hear: js_sys::Function,
    ) -> Result<String, JsValue> {
        let sampling = options::sampling(sampling).map_err(failed)?;
        let interrupt = self.engine.interrupt();
        let mut generation = self.engine.generate(prompt, &sampling).map_err(failed)?;
        let answer = Answer { interrupt, hear };
        answer.speak(async || generation.step().await).await?;
        Ok(answer::done(generation.finish(), &generation.stats(), generation.seed()))
    }

    /// Answers the last of `messages`, a user's: JSON, a list of `{role, content}`. Otherwise as [`Model::generate`].
    ///
    /// # Errors
    /// See `error.rs`.
    pub async fn chat(
        &mut self,
        messages: &str,
        sampling: &str,
        hear: js_sys::Function,
    ) -> Result<String, JsValue> {
        let sampling = options::sampling(sampling).map_err(failed)?;
        let (messages, text) = options::messages(messages).map_err(failed)?;
        let interrupt = self.engine.interrupt();
        let mut chat = self.engine.chat();
        chat.set_messages(messages);
        let mut reply = chat.send(&text, &sampling);
        let answer = Answer { interrupt, hear };
        answer.speak(async || reply.step().await).await?;
        Ok(answer::done(reply.finish(), &reply.stats(), reply.seed().unwrap_or_default()))
    }
}
