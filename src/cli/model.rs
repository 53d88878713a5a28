//! The flags that choose a model and how it runs, and opening it with a line that shows it.

use std::io::{Write, stderr};
use std::time::Duration;

use clap::{Args, ValueEnum};
use hadal::Error;
use hadal::backend::cpu::Activations;
use hadal::cache::{CacheType, Kind};
use hadal::engine::{Device, Engine, GpuLayers, Options};
use hadal::template::Template;
use indicatif::ProgressBar;

use super::hub::ModelName;
use super::{folder, value};

/// Flags for commands that run a model.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    #[command(flatten)]
    pub file: FileArgs,

    /// Tokens that fit in the context [default: what the model was trained for, at most 8192]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = value::count)]
    ctx_size: Option<usize>,

    /// Threads [default: one a core]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = value::count)]
    threads: Option<usize>,

    /// Chat template instead of the model's own: chatml, or a file with a Jinja template
    #[arg(long, visible_aliases = ["chat-template-file", "template"], value_name = "NAME|FILE")]
    chat_template: Option<String>,

    #[command(flatten)]
    numerics: NumericsArgs,
}

/// Templates that a flag can name. ChatML is what most models without a template of their own were tuned on.
static TEMPLATES: &[(&str, &str)] = &[(
    "chatml",
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}\
     {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
)];

/// The flag that names a model file.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Model")]
pub struct FileArgs {
    /// GGUF file, or OWNER/NAME:QUANT of what `hadal pull` brought [default: the built-in Austen model]
    #[arg(short, long, value_name = "FILE", env = "HADAL_MODEL")]
    pub model: Option<ModelName>,
}

/// Flags that change how numbers are stored and multiplied.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Model")]
pub struct NumericsArgs {
    /// What runs the model: cpu, gpu (the best one), gpu:NAME (the best one with that in its name), or auto: a GPU that
    /// is no software and passes its self-test, else the CPU
    #[arg(long, value_name = "DEVICE", default_value = "cpu", env = "HADAL_DEVICE", value_parser = value::device)]
    device: Device,

    /// Layers that the GPU runs, the last ones: a number, all, or auto for as many as fit
    #[arg(long, visible_alias = "n-gpu-layers", value_name = "N", default_value = "auto", allow_negative_numbers = true,
        env = "HADAL_GPU_LAYERS", value_parser = value::gpu_layers)]
    gpu_layers: GpuLayers,

    /// Memory of the GPU that may be used, like 6G or 800M [default: what its driver gives]
    #[arg(long, value_name = "SIZE", env = "HADAL_GPU_MEMORY", value_parser = value::bytes)]
    gpu_memory: Option<u64>,

    /// What weights are multiplied with: 8-bit blocks (fast) or f32 (slow, the reference)
    #[arg(long, value_name = "TYPE", default_value = "quantized")]
    activations: ActivationsName,

    /// Multiply prompts with the weights as they are stored: slower, the same answers, some memory less
    #[arg(long)]
    no_repack: bool,

    /// How keys and values are stored: a kind, KEYS/VALUES, turbo or turbo:kXvY [default: f16]; see hadal formats
    #[arg(long, visible_alias = "cache-type", value_name = "KIND", value_parser = value::cache)]
    kv: Option<CacheType>,

    /// How keys are stored, in place of what --kv says
    #[arg(long, value_name = "KIND", value_parser = value::cache_side)]
    cache_type_k: Option<&'static Kind>,

    /// How values are stored, in place of what --kv says
    #[arg(long, value_name = "KIND", value_parser = value::cache_side)]
    cache_type_v: Option<&'static Kind>,
}

/// As options name them.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ActivationsName {
    Quantized,
    Float,
}

impl From<ActivationsName> for Activations {
    fn from(name: ActivationsName) -> Self {
        match name {
            ActivationsName::Quantized => Activations::Quantized,
            ActivationsName::Float => Activations::Float,
        }
    }
}

impl ModelArgs {
    /// Opens the model.
    pub fn open(&self) -> hadal::Result<Engine> {
        // First what is quick to check.
        let template = self.chat_template.as_deref().map(template).transpose()?;
        let mut engine = self.file.open(&self.numerics.options(self.ctx_size, self.threads)?)?;
        if let Some(template) = template {
            engine.set_template(template);
        }
        Ok(engine)
    }
}

/// The template that is called `name`, or that is in the file `name`.
fn template(name: &str) -> hadal::Result<Template> {
    let named = TEMPLATES.iter().find(|(known, _)| *known == name);
    let source = match named {
        Some((_, source)) => (*source).to_owned(),
        None => std::fs::read_to_string(name).map_err(|error| {
            let names: Vec<_> = TEMPLATES.iter().map(|(name, _)| *name).collect();
            let message = format!("{name:?} is neither {} nor a readable file: {error}", names.join(", "));
            Error::option("--chat-template", message)
        })?,
    };
    Template::new(&source)
}

impl NumericsArgs {
    /// With the best GPU.
    pub fn on_gpu(self) -> Self {
        NumericsArgs { device: Device::Gpu(None), ..self }
    }

    /// Whether the CPU runs everything.
    pub fn is_cpu(&self) -> bool {
        self.device == Device::Cpu
    }

    /// Whether weights are repacked.
    pub fn repack(&self) -> bool {
        !self.no_repack
    }

    /// How keys and values are stored.
    pub fn cache(&self) -> hadal::Result<CacheType> {
        let both = self.kv.unwrap_or_default();
        CacheType::new(self.cache_type_k.unwrap_or(both.keys()), self.cache_type_v.unwrap_or(both.values()))
    }

    /// Options with these flags, a context of `context` tokens and `threads` threads.
    pub fn options(&self, context: Option<usize>, threads: Option<usize>) -> hadal::Result<Options> {
        Ok(Options {
            context,
            device: self.device.clone(),
            gpu_layers: self.gpu_layers,
            gpu_memory: self.gpu_memory,
            pipelines: folder::pipelines(),
            threads,
            activations: self.activations.into(),
            repack: !self.no_repack,
            cache: self.cache()?,
            ..Options::default()
        })
    }
}

impl FileArgs {
    /// Opens the file, or the built-in model if none was named. On a terminal a line shows that it takes time.
    pub fn open(&self, options: &Options) -> hadal::Result<Engine> {
        let Some(model) = &self.model else { return Engine::embedded(options) };
        let path = &model.path()?;
        let line = ProgressBar::new_spinner().with_message(format!("opening {}", path.display()));
        line.enable_steady_tick(Duration::from_millis(100));
        let engine = Engine::open_with(path, options);
        line.finish_and_clear();
        if let Ok(engine) = &engine
            && engine.info().dense_layers > 0
        {
            let info = engine.info();
            let notice = format!("{} of {} layers have a sliding window", info.dense_layers, info.layers);
            let _ =
                writeln!(stderr(), "{notice} and store keys and values as f16, the others as {}", info.cache);
        }
        engine
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hadal::template::{Context, Message};

    #[test]
    fn chatml_is_what_its_models_know() {
        let messages = [Message::system("S"), Message::user("Hi")];
        let context = Context { add_generation_prompt: true, ..Context::default() };
        let text = template("chatml").unwrap().render(&messages, &context).unwrap();
        let expected =
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn templates_come_from_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("template.jinja");
        std::fs::write(&path, "{{ messages[0].content }}!").unwrap();
        let found = template(path.to_str().unwrap()).unwrap();
        assert_eq!(found.render(&[Message::user("Hi")], &Context::default()).unwrap(), "Hi!");
        let error = template("chatmel").unwrap_err().to_string();
        assert!(
            error.starts_with("--chat-template: \"chatmel\" is neither chatml nor a readable file: "),
            "{error}"
        );
    }
}
