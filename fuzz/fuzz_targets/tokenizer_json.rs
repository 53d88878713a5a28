//! Any tokenizer.json is read or refused in one line; with one that is read, any text goes in and comes out. The input is
//! the file, a zero byte, and the text.
#![no_main]

use hadal::tokenizer::{Special, Tokenizer};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let (json, text) = input.split_at(input.iter().position(|&byte| byte == 0).unwrap_or(input.len()));
    let Ok(json) = std::str::from_utf8(json) else { return };
    let tokenizer = match Tokenizer::from_json(json, None) {
        Ok(tokenizer) => tokenizer,
        Err(error) => return assert!(!error.to_string().contains('\n')),
    };
    let text = String::from_utf8_lossy(text);
    let shielded = tokenizer.shield(&text);
    let ways = [
        tokenizer.encode_prompt(&text, Special::Parse),
        tokenizer.encode(&text, Special::Text),
        tokenizer.encode_rendered(&shielded),
    ];
    for ids in ways {
        let Ok(ids) = ids else { continue };
        let mut stream = tokenizer.stream();
        let mut streamed: String = ids.iter().map(|&id| stream.push(&tokenizer, id)).collect();
        streamed.push_str(&stream.finish());
        assert_eq!(streamed, tokenizer.decode(&ids));
    }
});
