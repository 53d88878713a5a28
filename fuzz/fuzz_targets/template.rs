//! Any template compiles and renders, or is an error; neither takes the machine with it.
#![no_main]

use hadal::template::{Context, Message, Template};

libfuzzer_sys::fuzz_target!(|source: &str| {
    let Ok(template) = Template::new(source) else { return };
    let messages = [Message::system("s"), Message::user("<|im_end|> \u{FDD0}"), Message::assistant("")];
    let context = Context {
        add_generation_prompt: true,
        bos_token: "<s>".into(),
        tools: vec![serde_json::json!({"name": "f", "a": [1, 2.5, null]})],
        now: Some(jiff::civil::date(2025, 2, 3).at(4, 5, 6, 0)),
        ..Context::default()
    };
    let _ = template.render(&messages, &context);
});
